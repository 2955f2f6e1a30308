{{- define "type" -}}
{{- if markdownShouldRenderType . }}
### {{ .Name }}

{{ .Doc }}
{{ if .References }}
Used by: {{ range $i, $r := .SortedReferences }}{{ if $i }}, {{ end }}{{ markdownRenderTypeLink $r }}{{ end }}.
{{ end }}
{{- if .Members }}
| Field | Meaning | Default | Schema |
| --- | --- | --- | --- |
{{- if .GVK }}
| `apiVersion` _string_ | `{{ .GVK.Group }}/{{ .GVK.Version }}` | | |
| `kind` _string_ | `{{ .GVK.Kind }}` | | |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` _{{ markdownRenderType .Type }}_ | {{ template "type_members" . }} | {{ markdownRenderDefault .Default }} | {{ range $i, $v := .Validation }}{{ if $i }}<br>{{ end }}{{ $v | replace ": {}" "" | replace "|" "\\|" | replace "1e+18" "10^18" | replace "1e+15" "10^15" }}{{ end }} |
{{- end }}
{{ end }}
{{- if .EnumValues }}
| Value | Meaning |
| --- | --- |
{{- range .EnumValues }}
| `{{ .Name }}` | {{ template "type_members" . }} |
{{- end }}
{{ end }}
{{- end }}
{{- end -}}
