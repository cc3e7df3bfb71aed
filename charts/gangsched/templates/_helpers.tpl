{{- define "gangsched.labels" -}}
app.kubernetes.io/name: gangsched
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "gangsched.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* A manifest of the project, in the namespace of the release. */ -}}
{{- define "gangsched.manifest" -}}
{{ .root.Files.Get (printf "files/%s" .name) | replace "gangsched-system" .root.Release.Namespace }}
{{- end }}

{{- define "gangsched.config" -}}
{{ merge (dict "lease_namespace" .Release.Namespace) .Values.settings | toYaml }}
{{- end }}

{{- define "gangsched.env" -}}
{{- $env := list }}
{{- if .Values.visibility.enabled }}
{{- $env = append $env (dict "name" "GANGSCHED_VISIBILITY_PORT" "value" "8443") }}
{{- if .Values.visibility.certificateSecret }}
{{- $env = append $env (dict "name" "GANGSCHED_VISIBILITY_CERT_DIR" "value" "/etc/gangsched-visibility") }}
{{- end }}
{{- end }}
{{- concat $env .Values.env | toYaml }}
{{- end }}
