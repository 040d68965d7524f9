{{/* What the pods of services and workers have in common. Each takes (dict "root" $ "name" NAME ...). */}}

{{- define "hocket.pod" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
priorityClassName: {{ .priority }}
automountServiceAccountToken: false
enableServiceLinks: false
topologySpreadConstraints:
{{- $name := .name }}
{{- range .root.Values.topologySpread }}
  - maxSkew: 1
    topologyKey: {{ .topologyKey }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels: {app: hocket, service: {{ $name }}}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "hocket.container" -}}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - configMapRef: {name: hocket}
  - secretRef: {name: {{ .root.Values.secrets.urls }}}
{{- if .keyed }}
  - secretRef: {name: {{ .root.Values.secrets.capability }}} # never for workers
{{- end }}
{{- if .admin }}
  - secretRef: {name: {{ .root.Values.secrets.admin }}, optional: true}
{{- end }}
{{- if and .user .root.Values.secrets.natsUsers }}
  - secretRef: {name: {{ .root.Values.secrets.natsUsers }}-{{ .user }}} # its own NATS_URL, instead of the shared one
{{- end }}
{{- if and .models .root.Values.secrets.modelKeys }}
  - secretRef: {name: {{ .root.Values.secrets.modelKeys }}}
{{- end }}
{{- range .secrets }}
  - secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* The text of a value as processes read it from a variable: (dict "name" NAME "value" VALUE). Helm reads every number of a
     values file as a float, which is exact up to 2^53 and which it would write with an exponent. `and` of an older Helm evaluates all
     its conditions, so they are nested. */}}
{{- define "hocket.text" -}}
{{- $value := .value -}}
{{- if kindIs "slice" $value -}}
{{- $texts := list -}}
{{- range $value }}
{{- $text := include "hocket.text" (dict "name" $.name "value" .) -}}
{{- if contains "," $text -}}
{{- fail (printf "%s: commas separate the entries, and `%s` contains one. Make it an entry for each." $.name $text) -}}
{{- end -}}
{{- $texts = append $texts $text -}}
{{- end -}}
{{- join ", " $texts -}}
{{- else if kindIs "map" $value -}}
{{- toJson $value -}}
{{- else if kindIs "invalid" $value -}}
{{- else if not (kindIs "float64" $value) -}}
{{- $value -}}
{{- else if eq (floor $value) $value -}}
{{- if or (gt $value 9007199254740991.0) (lt $value -9007199254740991.0) -}}
{{- fail (printf "%s: Helm cannot read so large a number exactly. Put it in quotes." .name) -}}
{{- end -}}
{{- int64 $value -}}
{{- else -}}
{{- $value -}}
{{- end -}}
{{- end }}

{{- define "hocket.mounts" -}}
volumeMounts:
  - {name: config, mountPath: /etc/hocket, readOnly: true}
  - {name: data, mountPath: /home/hocket/data}
  - {name: tmp, mountPath: /tmp}
{{- if .root.Values.secrets.tls }}
  - {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "hocket.volumes" -}}
volumes:
  - {name: config, configMap: {name: hocket-config}}
  - {name: data, emptyDir: {sizeLimit: {{ .size | default "64Mi" }}}}
  - {name: tmp, emptyDir: {sizeLimit: 64Mi}}
{{- if .root.Values.secrets.tls }}
  - {name: tls, secret: {secretName: {{ .root.Values.secrets.tls }}, defaultMode: 288}}
{{- end }}
{{- end }}

{{- define "hocket.probes" -}}
startupProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 2, failureThreshold: 60, timeoutSeconds: 3}
livenessProbe: {httpGet: {path: /healthz, port: health}, periodSeconds: 10, timeoutSeconds: 3}
readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 3, timeoutSeconds: 3}
{{- end }}
