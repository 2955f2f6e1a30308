{{- define "gvDetails" -}}
## {{ .GroupVersionString }}

{{ .Doc }}
{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end -}}
