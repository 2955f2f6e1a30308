{{- define "gvList" -}}
<!-- Generated from the comments of the API types by `make api-docs`. Do not edit. -->

# API reference
{{ range . }}
{{ template "gvDetails" . }}
{{- end }}
{{- end -}}
