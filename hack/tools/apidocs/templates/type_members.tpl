{{- define "type_members" -}}
{{ .Doc | replace "<" "&lt;" | replace "|" "\\|" | replace "\n" " " | trim }}
{{- end -}}
