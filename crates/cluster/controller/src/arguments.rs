//! Arguments and their help.

use std::net::IpAddr;
use std::path::PathBuf;

use cluster_objects::{ObjectName, is_label, is_subdomain};

use crate::discovery_arguments::{DiscoveryArguments, ProviderName, SourceArguments};

/// Runs Tidegate in Kubernetes, beside Docker or Podman, and with Consul.
#[derive(clap::Parser, Debug)]
#[command(name = "tidegate-controller", version, about, max_term_width = 100)]
pub struct ControllerArguments {
    #[command(subcommand)]
    pub command: ControllerCommand,
}

#[derive(clap::Subcommand, Debug)]
pub enum ControllerCommand {
    Render(Box<Render>),
    ConvertIngress(Box<ConvertIngress>),
    Run(Box<RunArguments>),
    Bootstrap(Bootstrap),
}

/// Settings of the translation of Ingresses.
#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Ingress")]
pub struct IngressArguments {
    /// Serves Ingresses of this class. Without it: those whose IngressClass names this controller; without any
    /// IngressClass, the classes nginx and tidegate.
    #[arg(long, value_name = "NAME")]
    pub ingress_class: Option<String>,

    /// Name in controller of an IngressClass of this controller.
    #[arg(long, value_name = "NAME", default_value = cluster_ingress::CONTROLLER_NAME)]
    pub ingress_controller_name: String,

    /// Serves Ingresses without a class, too.
    #[arg(long)]
    pub ingress_without_class: bool,

    /// Secret with the certificate of hosts without one of their own.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_object_name)]
    pub default_certificate: Option<ObjectName>,

    /// Service of requests that no rule takes. Without it: 404.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_object_name)]
    pub default_backend: Option<ObjectName>,

    /// ConfigMap with the keys of ingress-nginx's ConfigMap.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_object_name)]
    pub config_map: Option<ObjectName>,

    /// Address on which Ingresses, containers and services are served. Without it: all. Gateways with an address of their own leave it to Ingresses.
    #[arg(long, visible_alias = "listen-address", value_name = "ADDRESS")]
    pub ingress_address: Option<IpAddr>,

    /// Port of Ingresses, containers and services in cleartext (default: 80).
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,

    /// Port of Ingresses, containers and services over TLS (default: 443).
    #[arg(long, value_name = "PORT")]
    pub https_port: Option<u16>,

    /// Takes the directives of snippets. Authors of Ingresses and labels then write parts of the configuration.
    #[arg(long)]
    pub allow_snippets: bool,

    /// Folder that "tidegate waf setup" has written where the server runs: rules of enable-owasp-core-rules, and settings
    /// of enable-modsecurity. Without it: the first is refused, and the second has the settings that ModSecurity recommends.
    #[arg(long, value_name = "DIR", value_parser = parse_plain_folder)]
    pub firewall_folder: Option<String>,
}

/// Lists the annotations of Ingresses with the directives that they become, or that they have no equal.
///
/// Reads manifests and prints a line for each annotation of ingress-nginx: the directives that it becomes, or the reason
/// why it has no effect. Complaints about fields and values follow it. `tidegate convert ingress` runs this command.
///
/// Exit code: 0 if everything was translated, 1 if something was not, 2 if a file cannot be read.
#[derive(clap::Args, Debug)]
#[command(after_help = CONVERT_EXAMPLES)]
pub struct ConvertIngress {
    /// Files or folders with manifests, or - for the standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Prints JSON: annotations and complaints.
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub ingress: IngressArguments,
}

const CONVERT_EXAMPLES: &str = "\
Examples:
  tidegate-controller convert-ingress manifests/ --allow-snippets
  kubectl get ingresses,services -A -o yaml | tidegate-controller convert-ingress - --json
  tidegate-controller render --input manifests/    # the configuration itself";

/// Translates manifests to nginx.conf, without a cluster.
///
/// Reads Gateways, routes, Ingresses, Services, EndpointSlices, Secrets and ConfigMaps, and writes the configuration that serves
/// them: for a review, for a comparison of two versions, or to run it without Kubernetes. Kinds that Tidegate does not
/// know are passed over.
///
/// With --provider docker, podman or consul, it reads recorded answers: of "docker inspect", or of /v1/health/service/NAME.
///
/// Everything that is left out gives one line on the standard error stream: NAMESPACE/KIND NAME: reason.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Render {
    /// File or folder with manifests (.yaml, .yml, .json, with subfolders), or with recorded answers (.json), or - for the
    /// standard input; repeatable.
    #[arg(long, short, required = true, value_name = "PATH")]
    pub input: Vec<PathBuf>,

    /// Folder for nginx.conf and its files: certificates, keys (readable by their owner only) and authorities. Without
    /// it, nginx.conf goes to the standard output.
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Serves Gateways of this class only. Without it: those whose GatewayClass names this controller, or all, if the
    /// manifests have no GatewayClass.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,

    /// Name in controllerName of a GatewayClass of this controller.
    #[arg(long, value_name = "NAME", default_value = cluster_gateway::CONTROLLER_NAME)]
    pub controller_name: String,

    /// Address of a Gateway that asks for none itself; repeatable. Without an address, a Gateway listens on all.
    #[arg(long, value_name = "NAMESPACE/NAME=ADDRESS", value_parser = parse_gateway_address)]
    pub gateway_address: Vec<(ObjectName, IpAddr)>,

    /// Writes the conditions of all objects as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub status: Option<PathBuf>,

    /// Exits with 1 if anything is left out.
    #[arg(long)]
    pub strict: bool,

    /// Folder of the server's sockets and its PID file.
    #[arg(long, value_name = "DIR", default_value = "/run/tidegate")]
    pub run_folder: String,

    /// Port of /healthz and /metrics.
    #[arg(long, value_name = "PORT")]
    pub probe_port: Option<u16>,

    /// Counts the requests of each route and Ingress: the label location_zone of /metrics is NAMESPACE/KIND/NAME.
    #[arg(long)]
    pub route_metrics: bool,

    /// Resolver of names. Without EndpointSlices in the manifests, groups have the Services' names, which the server
    /// resolves when it starts, or, with a resolver, while it runs.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_resolver)]
    pub resolver: Option<String>,

    /// Listens on all IPv6 addresses, too, where a Gateway has no address.
    #[arg(long)]
    pub ipv6: bool,

    #[command(flatten)]
    pub ingress: IngressArguments,

    #[command(flatten)]
    pub discovery: DiscoveryArguments,
}

/// Runs beside a server: watches a cluster, an engine or Consul, and pushes each change to the server.
///
/// The server's API must listen on the socket of --api with "api write=on config=write;". The controller translates all
/// objects of its classes to one configuration, compares it with the active one, and sends the difference: only the servers
/// of groups if endpoints changed, otherwise the whole configuration. A configuration that the server refuses leaves the
/// old one active.
///
/// Kubernetes is the default. With --provider docker or podman, labels (tidegate.host) and variables (VIRTUAL_HOST) of
/// containers are translated, with --provider consul, tags of services.
///
/// In a cluster, each replica does this on its own. One of them, the holder of a Lease, writes statuses and events.
///
/// The server keeps on serving if the cluster, the engine, Consul or the controller is gone. SIGTERM gives the Lease back and ends.
#[derive(clap::Args, Debug)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArguments {
    /// Socket of the server's API.
    #[arg(long, value_name = "unix:PATH", default_value = "unix:/run/tidegate/api.sock", value_parser = parse_socket)]
    pub api: PathBuf,

    /// Serves Gateways of this class only. Without it: those whose GatewayClass names this controller.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,

    /// Name in controllerName of a GatewayClass of this controller.
    #[arg(long, value_name = "NAME", default_value = cluster_gateway::CONTROLLER_NAME)]
    pub controller_name: String,

    /// Addresses for Gateways that ask for none: each gets one of its own, and listens there only. The machine must have
    /// these addresses.
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',', value_parser = parse_pool)]
    pub address_pool: Vec<AddressRange>,

    /// Service in front of the pods, whose addresses are written to the status of Ingresses, and of Gateways without an
    /// address of their own.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_object_name)]
    pub publish_service: Option<ObjectName>,

    /// IP addresses and host names for these statuses, instead of those of a Service.
    #[arg(long, value_name = "ADDRESS,...", value_delimiter = ',', value_parser = parse_published,
          conflicts_with = "publish_service")]
    pub publish_status_address: Vec<String>,

    /// Removes the addresses from the status of all Ingresses when the last pod ends: names of external-dns go with it.
    /// The endpoints of the Service say which pod is the last one.
    #[arg(long, requires = "publish_service")]
    pub update_status_on_shutdown: bool,

    /// Gives each Gateway pods of its own: the leader makes a Deployment of this pod template, with --gateway, and a Service
    /// of the type LoadBalancer, in its own namespace. This server then serves Ingresses only.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["address_pool", "gateway", "no_status"])]
    pub provision: Option<PathBuf>,

    /// Serves this Gateway only, on all addresses, and no Ingresses. Statuses are left to the controller with --provision.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_object_name)]
    pub gateway: Option<ObjectName>,

    /// File with the address of the cluster and a user. Without it: KUBECONFIG, ~/.kube/config, or the pod's account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of /healthz, /readyz and /metrics of the controller.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub probe_address: Option<std::net::SocketAddr>,

    /// Address of the admission webhook, which answers over HTTPS: objects that the server would refuse are denied, and
    /// parts that would be left out are warnings.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "webhook_certificate")]
    pub webhook_address: Option<std::net::SocketAddr>,

    /// Certificate chain of the webhook (PEM); read again when the file changes.
    #[arg(long, value_name = "FILE", requires = "webhook_key")]
    pub webhook_certificate: Option<PathBuf>,

    /// Key of the webhook's certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "webhook_certificate")]
    pub webhook_key: Option<PathBuf>,

    /// Port of the server's own /healthz and /metrics; no listener can have it.
    #[arg(long, value_name = "PORT")]
    pub server_probe_port: Option<u16>,

    /// Counts the requests of each route and Ingress: the label location_zone of the server's /metrics is
    /// NAMESPACE/KIND/NAME.
    #[arg(long)]
    pub route_metrics: bool,

    /// Namespace of the Lease. Without it: the namespace of the pod or of the kubeconfig.
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,

    /// Name of the Lease. Replicas with the same name elect one leader.
    #[arg(long, value_name = "NAME", default_value = "tidegate-controller")]
    pub lease_name: String,

    /// Name of this replica in the Lease. Without it: POD_NAME, HOSTNAME, or a name with the process's number.
    #[arg(long, value_name = "NAME")]
    pub identity: Option<String>,

    /// Writes neither statuses nor events, and takes no Lease.
    #[arg(long)]
    pub no_status: bool,

    /// Resolver of names of the server.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_resolver)]
    pub resolver: Option<String>,

    /// Listens on all IPv6 addresses, too, where a Gateway has no address.
    #[arg(long)]
    pub ipv6: bool,

    #[command(flatten)]
    pub ingress: IngressArguments,

    #[command(flatten)]
    pub discovery: DiscoveryArguments,

    #[command(flatten)]
    pub source: SourceArguments,
}

/// Writes the configuration that a server starts with in a pod, if there is none.
///
/// It has the API on a socket and a probe, until "run" pushes the first configuration. A file that exists stays: a server
/// that restarts without a cluster serves its last configuration.
#[derive(clap::Args, Debug)]
pub struct Bootstrap {
    /// The server's main file.
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,

    /// Folder of the server's sockets and its PID file.
    #[arg(long, value_name = "DIR", default_value = "/run/tidegate")]
    pub run_folder: String,

    /// Port of /healthz.
    #[arg(long, value_name = "PORT")]
    pub probe_port: Option<u16>,
}

impl RunArguments {
    /// Returns an argument that has no meaning for the provider.
    pub fn misplaced(&self) -> Option<&'static str> {
        let of_kubernetes = [
            (self.class.is_some(), "--class"),
            (!self.address_pool.is_empty(), "--address-pool"),
            (self.publish_service.is_some(), "--publish-service"),
            (!self.publish_status_address.is_empty(), "--publish-status-address"),
            (self.provision.is_some(), "--provision"),
            (self.gateway.is_some(), "--gateway"),
            (self.kubeconfig.is_some(), "--kubeconfig"),
            (self.webhook_address.is_some(), "--webhook-address"),
            (self.leader_election_namespace.is_some(), "--leader-election-namespace"),
            (self.identity.is_some(), "--identity"),
            (self.no_status, "--no-status"),
        ];
        let provider = self.discovery.provider;
        let of_cluster = of_kubernetes.iter().find(|one| one.0).map(|one| one.1).or_else(|| self.ingress.misplaced());
        let of_cluster = of_cluster.filter(|_| provider != ProviderName::Kubernetes);
        of_cluster.or_else(|| self.discovery.misplaced()).or_else(|| self.source.misplaced(provider))
    }
}

impl Render {
    /// Returns an argument that has no meaning for the provider.
    pub fn misplaced(&self) -> Option<&'static str> {
        let of_kubernetes = [
            (self.class.is_some(), "--class"),
            (!self.gateway_address.is_empty(), "--gateway-address"),
            (self.status.is_some(), "--status"),
        ];
        let of_cluster = of_kubernetes.iter().find(|one| one.0).map(|one| one.1).or_else(|| self.ingress.misplaced());
        let of_cluster = of_cluster.filter(|_| self.discovery.provider != ProviderName::Kubernetes);
        of_cluster.or_else(|| self.discovery.misplaced())
    }
}

/// Addresses of a range.
#[derive(Clone, Debug)]
pub struct AddressRange(pub Vec<IpAddr>);

const RUN_EXAMPLES: &str = "\
Examples:
  tidegate-controller run --publish-service tidegate/tidegate --probe-address 0.0.0.0:9090
  tidegate-controller run --class tidegate --address-pool 192.0.2.16/28
  tidegate-controller run --kubeconfig ~/.kube/config --api unix:/tmp/tidegate/api.sock --no-status
  tidegate-controller run --provider docker --certificates /etc/certs --probe-address 127.0.0.1:9090
  tidegate-controller run --provider podman --engine unix:/run/user/1000/podman/podman.sock --published-ports
  tidegate-controller run --provider consul --consul https://consul.example.com:8501 --consul-token-file token";

const EXAMPLES: &str = "\
Examples:
  tidegate-controller render --input manifests/
  kubectl get gateways,httproutes,services,endpointslices,secrets -A -o yaml | tidegate-controller render --input -
  helm template shop ./chart | tidegate-controller render --input - --strict > /dev/null
  docker inspect $(docker ps -aq) | tidegate-controller render --provider docker --input -
  tidegate-controller render --input manifests/ --output conf/ --run-folder /tmp && tidegate -t -c conf/nginx.conf";

fn parse_object_name(text: &str) -> Result<ObjectName, String> {
    let name = text.split_once('/').filter(|(namespace, name)| is_label(namespace) && is_subdomain(name));
    let (namespace, name) = name.ok_or_else(|| "expected NAMESPACE/NAME".to_owned())?;
    Ok(ObjectName::new(namespace, name))
}

fn parse_gateway_address(text: &str) -> Result<(ObjectName, IpAddr), String> {
    let usage = || "expected NAMESPACE/NAME=ADDRESS".to_owned();
    let (name, address) = text.split_once('=').ok_or_else(usage)?;
    let (namespace, name) = name.split_once('/').ok_or_else(usage)?;
    if !is_label(namespace) || !is_subdomain(name) {
        return Err(usage());
    }
    let address = address.parse().map_err(|_| format!("\"{address}\" is no IP address"))?;
    Ok((ObjectName::new(namespace, name), address))
}

fn parse_socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").map(PathBuf::from).filter(|path| path.is_absolute());
    path.ok_or_else(|| "expected \"unix:\" and an absolute path".into())
}

fn parse_published(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.parse::<IpAddr>().is_ok() || is_subdomain(text) {
        true => Ok(text.to_owned()),
        false => Err("expected an IP address or a host name".into()),
    }
}

fn parse_pool(text: &str) -> Result<AddressRange, String> {
    crate::address_range::parse_range(text.trim()).map(AddressRange)
}

/// Parses a path that means itself in nginx.conf and in SecLang.
fn parse_plain_folder(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    match text.starts_with('/') && text.bytes().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("expected an absolute path of letters, digits, \"/\", \".\", \"_\" and \"-\"".into()),
    }
}

fn parse_resolver(text: &str) -> Result<String, String> {
    let host = text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let host = host.map_or(text, |(host, _)| host).trim_matches(['[', ']']);
    match host.parse::<IpAddr>().is_ok() || is_subdomain(host) {
        true => Ok(text.to_owned()),
        false => Err("expected the address of a name server".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_gateway_address, parse_resolver};

    #[test]
    fn the_definition_of_the_arguments_is_consistent() {
        use clap::CommandFactory as _;
        super::ControllerArguments::command().debug_assert();
    }

    #[test]
    fn arguments_of_another_provider_are_named() {
        use clap::Parser as _;
        let misplaced = |words: &[&str]| match super::ControllerArguments::try_parse_from(words).unwrap().command {
            super::ControllerCommand::Run(run) => run.misplaced(),
            super::ControllerCommand::Render(render) => render.misplaced(),
            _ => panic!("{words:?}"),
        };
        let run = ["tidegate-controller", "run"];
        assert_eq!(misplaced(&run), None);
        let with = |more: &[&'static str]| misplaced(&[&run, more].concat());
        assert_eq!(with(&["--provider", "docker", "--engine", "unix:/a", "--network", "b"]), None);
        assert_eq!(with(&["--provider", "docker", "--class", "x"]), Some("--class"));
        assert_eq!(with(&["--provider", "docker", "--ingress-class", "x"]), Some("--ingress-class"));
        assert_eq!(with(&["--provider", "docker", "--consul", "x"]), Some("--consul"));
        assert_eq!(with(&["--provider", "consul", "--network", "x"]), Some("--network"));
        assert_eq!(with(&["--engine", "unix:/a"]), Some("--engine"));
        assert_eq!(with(&["--default-host", "a.test"]), Some("--default-host"));
        let render = ["tidegate-controller", "render", "--input", "x", "--provider", "podman", "--status", "y"];
        assert_eq!(misplaced(&render), Some("--status"));
        let acme = [&run[..], &["--provider", "docker", "--acme-state", "/a", "--acme-accept-terms"]].concat();
        assert!(super::ControllerArguments::try_parse_from(&acme).is_err(), "the authority has a name");
        assert!(super::ControllerArguments::try_parse_from([&acme[..], &["--resolver", "127.0.0.1"]].concat()).is_ok());
    }

    #[test]
    fn addresses_are_checked() {
        assert!(parse_gateway_address("infra/public=10.0.0.1").is_ok());
        for text in ["infra=10.0.0.1", "infra/public", "infra/public=host", "In/a=::1"] {
            assert!(parse_gateway_address(text).is_err(), "{text}");
        }
        for text in ["10.0.0.10", "10.0.0.10:53", "[fd00::10]:53", "kube-dns.kube-system.svc"] {
            assert!(parse_resolver(text).is_ok(), "{text}");
        }
        for text in ["", "a b", "10.0.0.10; evil"] {
            assert!(parse_resolver(text).is_err(), "{text}");
        }
    }
}
