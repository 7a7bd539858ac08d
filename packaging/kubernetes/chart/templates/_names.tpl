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

{{- define "gridhaul.nodes" -}}
{{ .Release.Name }}-nodes
{{- end }}

{{- /* Other ones than those of the server, whose Service must not select nodes. */}}
{{- define "gridhaul.nodeLabels" -}}
app.kubernetes.io/name: gridhaul-node
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The server refuses a key that other accounts may read, as for its group it would be in the volume of a secret. */}}
{{- define "gridhaul.hostKey" -}}
- name: host-key
  image: {{ .Values.keyImage }}
  command: [sh, -c, cp /secret/hostcert.pem /host && install -m 0400 /secret/hostkey.pem /host]
  securityContext:
    {{- include "gridhaul.confined" . | nindent 4 }}
  volumeMounts:
    - name: secret
      mountPath: /secret
      readOnly: true
    - name: host
      mountPath: /host
{{- end }}
