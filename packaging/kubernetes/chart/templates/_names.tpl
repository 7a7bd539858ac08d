{{- define "gridhaul.labels" -}}
app.kubernetes.io/name: gridhaul
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gridhaul.claim" -}}
{{ .Values.data.existingClaim | default (printf "%s-data" .Release.Name) }}
{{- end }}

{{- define "gridhaul.last" -}}
{{- $last := sub (add .Values.dataPorts.first .Values.dataPorts.count) 1 }}
{{- if gt $last 65535 }}
{{- fail "dataPorts: the last port is above 65535" }}
{{- end }}
{{- $last }}
{{- end }}

{{- /* What the kubelet asks: PATH is /healthz or /readyz. */}}
{{- define "gridhaul.probe" -}}
{{- if .values.hostNetwork -}}
httpGet:
  host: 127.0.0.1
  port: {{ .values.adminPort }}
  path: {{ .path }}
{{- else -}}
exec:
  command: [/usr/sbin/gridhaul-server, status]
{{- end }}
{{- end }}

{{- define "gridhaul.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
