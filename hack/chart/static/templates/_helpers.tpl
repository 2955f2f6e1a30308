{{/* The manager's image. */}}
{{- define "fencedlease.image" -}}
{{ .Values.manager.image.repository }}:{{ .Values.manager.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The host by which API servers call the webhook, if it is a name. */}}
{{- define "fencedlease.webhookName" -}}
{{- $host := get (urlParse .Values.manager.webhookURL) "hostname" }}
{{- if not (regexMatch "^[0-9.]+$|:" $host) }}{{ $host }}{{ end }}
{{- end }}

{{/* The same, if it is an address: a list of one or of none. */}}
{{- define "fencedlease.webhookAddresses" -}}
{{- $host := get (urlParse .Values.manager.webhookURL) "hostname" }}
{{- if regexMatch "^[0-9.]+$|:" $host }}{{ list $host | toYaml }}{{ else }}[]{{ end }}
{{- end }}
