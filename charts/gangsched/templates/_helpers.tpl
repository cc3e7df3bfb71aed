{{- define "gangsched.labels" -}}
app.kubernetes.io/name: gangsched
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- /* Labels that selectors use are not replaced. */ -}}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "gangsched.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* The scheduler names, as a YAML list. */ -}}
{{- define "gangsched.schedulerNames" -}}
{{- $names := .Values.settings.scheduler_names | default (list "gangsched") }}
{{- if kindIs "string" $names }}{{- $names = regexSplit "\\s*,\\s*" (trim $names) -1 }}{{- end }}
{{- toYaml $names }}
{{- end }}

{{- /* The objects of a manifest of the project, in the namespace of the release and with its labels. `replaced` maps texts of the manifest to
others, `annotations` maps kinds to annotations, and objects whose `Kind/name` is in `without` are left out. */ -}}
{{- define "gangsched.manifest" -}}
{{- $root := .root }}
{{- $text := $root.Files.Get (printf "files/%s" .name) | replace "gangsched-system" $root.Release.Namespace }}
{{- range $old, $new := .replaced }}{{- $text = replace $old $new $text }}{{- end }}
{{- range $document := splitList "\n---\n" $text }}
{{- $object := fromYaml $document }}
{{- if not (has (printf "%s/%s" $object.kind $object.metadata.name) ($.without | default list)) }}
{{- $_ := set $object.metadata "labels" (merge (dict) ($object.metadata.labels | default dict) ($.labels | default dict) (include "gangsched.labels" $root | fromYaml)) }}
{{- with get ($.annotations | default dict) $object.kind }}
{{- $_ := set $object.metadata "annotations" (merge (dict) . ($object.metadata.annotations | default dict)) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
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

{{- /* Where pods of the image may run, and what they may do. */ -}}
{{- define "gangsched.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "gangsched.container" -}}
image: {{ include "gangsched.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
