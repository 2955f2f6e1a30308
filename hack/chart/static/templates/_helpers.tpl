{{/* The manager's image. */}}
{{- define "fencedlease.image" -}}
{{ .Values.manager.image.repository }}:{{ .Values.manager.image.tag | default .Chart.AppVersion }}
{{- end }}
