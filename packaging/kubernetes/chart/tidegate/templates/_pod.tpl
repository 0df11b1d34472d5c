{{/* Arguments of the controller that do not depend on the Gateway of a pod. */}}
{{- define "tidegate.arguments" -}}
- --api=unix:/run/tidegate/api.sock
- --server-probe-port={{ .Values.server.probePort }}
- --probe-address=0.0.0.0:{{ .Values.controller.probePort }}
- --leader-election-namespace={{ .Release.Namespace }}
- --lease-name={{ include "tidegate.fullname" . }}-controller
{{- if ne .Values.gatewayClass.controllerName "tidegate.invalid/gateway-controller" }}
- --controller-name={{ .Values.gatewayClass.controllerName }}
{{- end }}
{{- if ne .Values.ingressClass.controllerName "tidegate.invalid/ingress-controller" }}
- --ingress-controller-name={{ .Values.ingressClass.controllerName }}
{{- end }}
{{- if .provisioned }}
{{- else if .Values.publishStatusAddress }}
- --publish-status-address={{ join "," .Values.publishStatusAddress }}
{{- else if .Values.service.create }}
- --publish-service={{ .Release.Namespace }}/{{ include "tidegate.fullname" . }}
{{- if .Values.updateStatusOnShutdown }}
- --update-status-on-shutdown
{{- end }}
{{- end }}
{{- if and .Values.addressPool (not .provisioned) }}
- --address-pool={{ join "," .Values.addressPool }}
{{- end }}
{{- if and .Values.provision.enabled (not .provisioned) }}
- --provision=/etc/tidegate-provision/pod.yaml
{{- end }}
{{- if .Values.server.routeMetrics }}
- --route-metrics
{{- end }}
{{- with .Values.resolver }}
- --resolver={{ . }}
{{- end }}
{{- if .Values.ipv6 }}
- --ipv6
{{- end }}
{{- if not .provisioned }}
{{- if .Values.ingress.allowSnippets }}
- --allow-snippets
{{- end }}
{{- with .Values.ingress.firewallFolder }}
- --firewall-folder={{ . }}
{{- end }}
{{- if .Values.ingress.withoutClass }}
- --ingress-without-class
{{- end }}
{{- with .Values.ingress.defaultCertificate }}
- --default-certificate={{ . }}
{{- end }}
{{- with .Values.ingress.defaultBackend }}
- --default-backend={{ . }}
{{- end }}
{{- with .Values.ingress.address }}
- --ingress-address={{ . }}
{{- end }}
{{- if .Values.ingress.config }}
- --config-map={{ .Release.Namespace }}/{{ include "tidegate.fullname" . }}
{{- end }}
{{- if .Values.webhook.enabled }}
- --webhook-address=0.0.0.0:{{ .Values.webhook.port }}
- --webhook-certificate=/etc/tidegate-webhook/tls.crt
- --webhook-key=/etc/tidegate-webhook/tls.key
{{- end }}
{{- end }}
{{- with .Values.controller.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The template of pods; with "provisioned", of those that serve one Gateway each: no Service of the chart selects them. */}}
{{- define "tidegate.pod" -}}
{{- $webhook := and .Values.webhook.enabled (not .provisioned) -}}
{{- $provision := and .Values.provision.enabled (not .provisioned) -}}
metadata:
  labels:
    {{- if .provisioned }}
    app.kubernetes.io/name: {{ include "tidegate.name" . }}
    app.kubernetes.io/component: gateway
    app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
    {{- else }}
    {{- include "tidegate.labels" . | nindent 4 }}
    {{- end }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $provision .Values.podAnnotations }}
  annotations:
    {{- if $provision }}
    # The controller reads the template of the Gateways' pods when it starts.
    tidegate.invalid/provision: {{ include "tidegate.pod" (merge (dict "provisioned" true) .) | sha256sum | quote }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "tidegate.serviceAccount" . }}
  # The token is mounted in the controller's container alone.
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if .Values.hostNetwork }}
  # A pod cannot set the node's net.ipv4.ip_unprivileged_port_start, which ports below 1024 need.
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
    {{- if not .Values.hostNetwork }}
    # Ports below 1024 for a process without privileges. NET_BIND_SERVICE alone has no effect for one that is not root.
    sysctls:
      - {name: net.ipv4.ip_unprivileged_port_start, value: "0"}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  initContainers:
    # A configuration with the API and a probe, if there is none: a container that restarts keeps its last one.
    - name: bootstrap
      image: {{ include "tidegate.image" . }}
      {{- with .Values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      command:
        - /usr/sbin/tidegate-controller
        - bootstrap
        - --output=/etc/tidegate-live/nginx.conf
        - --run-folder=/run/tidegate
        - --probe-port={{ .Values.server.probePort }}
      {{- include "tidegate.containerSecurity" . | nindent 6 }}
      volumeMounts:
        - {name: configuration, mountPath: /etc/tidegate-live}
  containers:
    - name: tidegate
      image: {{ include "tidegate.image" . }}
      {{- with .Values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      command: [/usr/sbin/tidegate, -e, stderr, -c, /etc/tidegate-live/nginx.conf, -g, daemon off;]
      ports:
        {{- range (ternary list .Values.service.ports (default false .provisioned)) }}
        - name: {{ .name }}
          containerPort: {{ default .port .targetPort }}
          protocol: {{ default "TCP" .protocol }}
          {{- if $.Values.hostPorts }}
          hostPort: {{ .port }}
          {{- end }}
        {{- end }}
        - {name: probe, containerPort: {{ .Values.server.probePort }}}
      {{- include "tidegate.containerSecurity" . | nindent 6 }}
      livenessProbe:
        httpGet: {path: /healthz, port: probe}
      readinessProbe:
        httpGet: {path: /healthz, port: probe}
        periodSeconds: 2
      lifecycle:
        # Load balancers stop sending before the server stops listening. QUIT (the image's stop signal) then ends
        # active requests.
        preStop:
          sleep: {seconds: {{ .Values.preStopSeconds }}}
      {{- with .Values.server.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: run, mountPath: /run/tidegate}
        - {name: configuration, mountPath: /etc/tidegate-live}
        - {name: temporary, mountPath: /tmp}
    - name: controller
      image: {{ include "tidegate.image" . }}
      {{- with .Values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      command:
        - /usr/sbin/tidegate-controller
        - run
        {{- include "tidegate.arguments" . | nindent 8 }}
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
      ports:
        - {name: metrics, containerPort: {{ .Values.controller.probePort }}}
        {{- if $webhook }}
        - {name: webhook, containerPort: {{ .Values.webhook.port }}}
        {{- end }}
      {{- include "tidegate.containerSecurity" . | nindent 6 }}
      livenessProbe:
        httpGet: {path: /healthz, port: metrics}
      readinessProbe:
        httpGet: {path: /readyz, port: metrics}
        periodSeconds: 2
      {{- with .Values.controller.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: run, mountPath: /run/tidegate}
        - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
        {{- if $webhook }}
        - {name: webhook, mountPath: /etc/tidegate-webhook, readOnly: true}
        {{- end }}
        {{- if $provision }}
        - {name: provision, mountPath: /etc/tidegate-provision, readOnly: true}
        {{- end }}
  volumes:
    - name: run
      emptyDir: {medium: Memory, sizeLimit: 16Mi}
    - name: configuration
      emptyDir: {sizeLimit: 256Mi}
    - name: temporary
      emptyDir: {sizeLimit: 1Gi}
    {{- if $provision }}
    - name: provision
      configMap: {name: {{ include "tidegate.fullname" . }}-provision}
    {{- end }}
    {{- if $webhook }}
    - name: webhook
      # Without the Secret, the controller runs and answers no review.
      secret: {secretName: {{ include "tidegate.fullname" . }}-webhook, optional: true}
    {{- end }}
    - name: token
      projected:
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 3600}
          - configMap:
              name: kube-root-ca.crt
              items: [{key: ca.crt, path: ca.crt}]
          - downwardAPI:
              items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}
