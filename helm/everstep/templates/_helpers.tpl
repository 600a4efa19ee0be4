{{/* What selects the operator's pods; it never changes, since a Deployment's selector cannot. */}}
{{- define "everstep.selector" -}}
app.kubernetes.io/name: everstep-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "everstep.labels" -}}
{{ include "everstep.selector" . }}
app.kubernetes.io/part-of: everstep
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "everstep.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default "everstep-operator" }}
{{- end }}

{{/* Objects of the whole cluster: two releases in two namespaces must not share them. */}}
{{- define "everstep.clusterName" -}}
everstep-operator-{{ .Release.Namespace }}
{{- end }}

{{/* registry/repository:tag of (list . image) */}}
{{- define "everstep.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{ with $image.registry }}{{ . }}/{{ end }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end }}

{{/* What the operator may do where it runs jobs. */}}
{{- define "everstep.jobRules" -}}
- apiGroups: [everstep.dev]
  resources: [trainingjobs]
  verbs: [get, list, watch, update, patch, delete]
- apiGroups: [everstep.dev]
  resources: [trainingjobs/status]
  verbs: [get, update, patch]
# Pods that belong to a job keep its deletion waiting (blockOwnerDeletion).
- apiGroups: [everstep.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, persistentvolumeclaims]
  verbs: [create, get]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, get]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- define "everstep.subjects" -}}
- kind: ServiceAccount
  name: {{ include "everstep.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
