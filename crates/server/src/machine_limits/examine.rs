//! Compares the machine with the configuration: the first limit to be reached, and the command that raises it.

use crate::machine_limits::demand::Demand;
use crate::machine_limits::machine::DoctorMachine;

/// Name of the finding about the worker process's descriptors.
pub const OPEN_FILES: &str = "open files";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingVerdict {
    Fine,
    /// Works, but slower or not always.
    Note,
    /// The machine's limit is below the configuration's need.
    Short,
}

#[derive(Clone, Debug)]
pub struct Finding {
    pub name: &'static str,
    pub here: String,
    pub needed: String,
    pub verdict: FindingVerdict,
    /// Maximum of simultaneous client connections under this limit.
    pub connections: Option<u64>,
    /// Consequence of the limit, unless the verdict is `Fine`.
    pub why: String,
    /// Command or setting that raises the limit.
    pub remedy: String,
}

/// Bytes per idle connection: the kernel's socket, file and event entry, and Tidegate's entry.
const IDLE_BYTES: u64 = 4352;
/// Seconds that a port stays in TIME_WAIT.
const REST_SECONDS: u64 = 60;
/// Fewer watches are soon used up by one site's tree.
const WATCHES_MIN: u64 = 8192;

/// In the order of the report.
pub fn examine_machine(machine: &DoctorMachine, demand: &Demand) -> Vec<Finding> {
    let mut out = Vec::new();
    for check in [
        descriptors,
        all_descriptors,
        accept_queue,
        handshakes,
        ports,
        resting_ports,
        own_ports,
        tracking,
        memory,
        watches,
        datagram_buffer,
        segmentation,
        udp_firewall,
    ] {
        out.extend(check(machine, demand));
    }
    out.extend(processors(machine, demand));
    out
}

/// Includes `worker_connections`; returns the number of connections.
pub fn first_to_bind(findings: &[Finding], demand: &Demand) -> (&'static str, u64) {
    let least = findings.iter().filter_map(|f| Some((f.name, f.connections?))).min_by_key(|(_, n)| *n);
    match least {
        Some((name, n)) if n < demand.connections() => (name, n),
        _ => ("worker_connections", demand.connections()),
    }
}

fn finding(name: &'static str, here: String, needed: String, connections: Option<u64>, fits: bool) -> Finding {
    let verdict = if fits { FindingVerdict::Fine } else { FindingVerdict::Short };
    Finding { name, here, needed, verdict, connections, why: String::new(), remedy: String::new() }
}

/// Returns `None` if the hard limit is unknown.
pub fn descriptors_allowed(machine: &DoctorMachine, demand: &Demand) -> Option<u64> {
    let hard = machine.descriptors_hard?;
    Some(match demand.descriptors_each {
        Some(each) if machine.root => each.saturating_mul(demand.workers),
        Some(each) => each.saturating_mul(demand.workers).min(hard),
        None => hard,
    })
}

/// End of a remedy that is a line of the configuration.
pub const IN_MAIN_CONTEXT: &str = "   (in the main context)";

fn descriptors(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let allowed = descriptors_allowed(machine, demand)?;
    let needed = demand.descriptors(demand.connections());
    let room = allowed.saturating_sub(demand.standing()) / demand.each();
    let mut f = finding(OPEN_FILES, format_number(allowed), format_number(needed), Some(room), allowed >= needed);
    let each = needed.div_ceil(demand.workers.max(1)).next_multiple_of(1024);
    f.why = format!(
        "each of {} connections may need {} descriptors; without free descriptors, new connections wait",
        format_number(demand.connections()),
        demand.each()
    );
    f.remedy = if machine.root {
        format!("worker_rlimit_nofile {each};{IN_MAIN_CONTEXT}")
    } else {
        let all = needed.next_multiple_of(1024);
        format!("LimitNOFILE={all}   (systemd unit), or as root: ulimit -Hn {all}")
    };
    Some(f)
}

fn all_descriptors(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let all = machine.descriptors_all?;
    let needed = demand.descriptors(demand.connections());
    let room = all.saturating_sub(demand.standing()) / demand.each();
    let mut f =
        finding("open files, all processes", format_number(all), format_number(needed), Some(room), all >= needed);
    f.why = "all processes of the machine together run out of descriptors".into();
    f.remedy = format!("sysctl -w fs.file-max={}", needed.saturating_mul(2));
    Some(f)
}

fn accept_queue(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let here = machine.accept_queue?;
    let (address, needed) = demand.addresses.iter().max_by_key(|(_, backlog)| *backlog)?;
    let mut f = finding("accept queue", format_number(here), format_number(*needed), None, here >= *needed);
    f.why = format!("the kernel limits the backlog of {address} to {here}; larger bursts of connections are dropped");
    f.remedy = format!("sysctl -w net.core.somaxconn={needed}");
    Some(f)
}

fn handshakes(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let here = machine.handshakes?;
    let needed = demand.addresses.iter().map(|(_, backlog)| *backlog).max()?;
    let cookies = machine.syn_cookies == Some(true);
    let mut f = finding("handshakes", format_number(here), format_number(needed), None, here >= needed || cookies);
    if here < needed && cookies {
        f.here += " and cookies";
    }
    f.why = "the kernel drops further handshakes, so a SYN flood locks clients out".into();
    f.remedy = format!("sysctl -w net.ipv4.tcp_max_syn_backlog={needed} net.ipv4.tcp_syncookies=1");
    Some(f)
}

fn ports(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let (first, last) = machine.ports.filter(|_| demand.upstreams > 0)?;
    let each = last.saturating_sub(first) + 1;
    let here = each.saturating_mul(demand.upstreams);
    let needed = demand.connections();
    let mut f = finding("ports to upstreams", format_number(here), format_number(needed), Some(here), here >= needed);
    f.why = format!("{} local ports for each of {} upstream servers", format_number(each), demand.upstreams);
    f.remedy =
        "sysctl -w net.ipv4.ip_local_port_range=\"10240 65535\", more servers, or proxy_bind with several addresses"
            .into();
    Some(f)
}

/// Services usually listen below this port. An outgoing connection on such a port prevents the service's restart.
const SERVICES_BELOW: u64 = 10_000;

fn own_ports(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let (first, last) = machine.ports?;
    let own = demand.addresses.iter().filter_map(|(address, _)| address.rsplit_once(':')?.1.parse::<u64>().ok());
    let mut taken: Vec<u64> = own.filter(|port| (first..=last).contains(port)).collect();
    taken.sort_unstable();
    taken.dedup();
    if taken.is_empty() && first >= SERVICES_BELOW {
        return None;
    }
    let mut f = finding("outgoing ports", format!("{first}-{last}"), format!("{SERVICES_BELOW}+"), None, true);
    f.verdict = FindingVerdict::Note;
    let list = taken.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    f.why = match taken.is_empty() {
        true => "outgoing connections can occupy ports of services (such as 8080), which then fail to start".into(),
        false => format!(
            "outgoing connections may use {list}, which this configuration listens on: a restart then fails to bind"
        ),
    };
    f.remedy = match taken.is_empty() {
        true => "sysctl -w net.ipv4.ip_local_port_range=\"10240 65535\"".into(),
        false => format!("sysctl -w net.ipv4.ip_local_reserved_ports={list}"),
    };
    Some(f)
}

fn resting_ports(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let (first, last) = machine.ports.filter(|_| demand.upstreams > 0)?;
    let rate = (last.saturating_sub(first) + 1).saturating_mul(demand.upstreams) / REST_SECONDS;
    // Value 2, the kernel's default, applies to loopback only.
    let reused = machine.reuse == Some(1) || (machine.reuse == Some(2) && demand.upstreams_local);
    let here = if reused { "reused".to_string() } else { format!("{}/s", format_number(rate)) };
    let mut f = finding("new upstream connections", here, "-".into(), None, true);
    if !reused && !demand.keeps_upstreams {
        f.verdict = FindingVerdict::Note;
    }
    f.why =
        format!("a port stays in TIME_WAIT for {REST_SECONDS} s; without keepalive this limits the connection rate");
    f.remedy = "keepalive 32;   (in the upstream block), or sysctl -w net.ipv4.tcp_tw_reuse=1".into();
    Some(f)
}

fn tracking(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let max = machine.tracked_max?;
    let each = if demand.upstreams > 0 { 2 } else { 1 };
    let needed = demand.connections().saturating_mul(each);
    let free = max.saturating_sub(machine.tracked.unwrap_or(0));
    let mut f =
        finding("tracked connections", format_number(free), format_number(needed), Some(free / each), free >= needed);
    f.why = "the firewall drops packets of connections that it cannot track".into();
    f.remedy = format!(
        "sysctl -w net.netfilter.nf_conntrack_max={}",
        needed.saturating_add(max - free).next_multiple_of(65_536)
    );
    Some(f)
}

fn memory(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let here = machine.memory?;
    let standing = demand.cache_bytes.saturating_mul(demand.workers);
    let idle = demand.connections().saturating_mul(IDLE_BYTES).saturating_add(standing);
    let worst = demand
        .connections()
        .saturating_mul(IDLE_BYTES + demand.head_bytes + demand.proxy_bytes)
        .saturating_add(standing);
    let room = here.saturating_sub(standing) / IDLE_BYTES;
    let mut f = finding("memory", format_bytes(here), format_bytes(idle), Some(room), here >= idle);
    if here >= idle && here < worst {
        f.verdict = FindingVerdict::Note;
        f.why = format!(
            "idle connections fit; with full buffers ({} each) the connections need {}",
            format_bytes(demand.head_bytes + demand.proxy_bytes),
            format_bytes(worst)
        );
    } else {
        f.why =
            format!("{} idle connections need {} each", format_number(demand.connections()), format_bytes(IDLE_BYTES));
    }
    f.remedy = "lower worker_connections or the buffer sizes, or add memory".into();
    Some(f)
}

fn watches(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let here = machine.watches.filter(|_| demand.cache_bytes > 0 && demand.files)?;
    let mut f =
        finding("watched directories", format_number(here), format!("{}+", format_number(WATCHES_MIN)), None, true);
    if here < WATCHES_MIN {
        f.verdict = FindingVerdict::Note;
    }
    f.why = "if a directory cannot be watched, every request checks its files on disk".into();
    f.remedy = "sysctl -w fs.inotify.max_user_watches=65536".into();
    Some(f)
}

fn datagram_buffer(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let here = machine.receive_buffer.filter(|_| !demand.quic_ports.is_empty())?;
    let needed = net::packets::RECEIVE_BUFFER as u64;
    let mut f = finding("UDP receive buffer", format_bytes(here), format_bytes(needed), None, true);
    if here < needed {
        f.verdict = FindingVerdict::Note;
    }
    f.why =
        "HTTP/3 clients that connect at the same time, or upload, overflow the buffer and have to retransmit".into();
    f.remedy = format!("sysctl -w net.core.rmem_max={needed}");
    Some(f)
}

/// First kernel with UDP_SEGMENT.
const GSO_SINCE: (u64, u64) = (4, 18);

fn segmentation(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    let kernel = machine.kernel.filter(|_| !demand.quic_ports.is_empty())?;
    let has_gso = kernel >= GSO_SINCE;
    let here = if has_gso { "available" } else { "none" };
    let needed = if demand.quic_without_gso { "off" } else { "on" };
    let mut f = finding("UDP segmentation", here.into(), needed.into(), None, true);
    if has_gso == demand.quic_without_gso {
        f.verdict = FindingVerdict::Note;
    }
    (f.why, f.remedy) = if has_gso {
        ("each HTTP/3 datagram needs its own system call".into(), "quic_gso on;".into())
    } else {
        let (major, minor) = kernel;
        let why = format!("Linux {major}.{minor} does not segment UDP: each HTTP/3 datagram needs its own system call");
        (why, format!("Linux {}.{} or newer", GSO_SINCE.0, GSO_SINCE.1))
    };
    Some(f)
}

fn udp_firewall(machine: &DoctorMachine, demand: &Demand) -> Option<Finding> {
    machine.tracked_max.filter(|_| !demand.quic_ports.is_empty())?;
    let ports = demand.quic_ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let mut f = finding("firewall", "loaded".into(), format!("UDP {ports}"), None, true);
    f.verdict = FindingVerdict::Note;
    f.why = "a firewall is active; if it blocks UDP, clients use HTTP/2 instead of HTTP/3".into();
    f.remedy = format!("nft add rule inet filter input udp dport {{ {ports} }} accept");
    Some(f)
}

fn processors(machine: &DoctorMachine, demand: &Demand) -> Vec<Finding> {
    let mut out = Vec::new();
    let Some(here) = machine.processors else { return out };
    let mut f = finding("CPUs", format_number(here), format_number(demand.workers), None, true);
    if demand.workers > here {
        f.verdict = FindingVerdict::Note;
    }
    f.why = "more worker threads than CPUs do not increase the throughput".into();
    f.remedy = "worker_processes auto;".into();
    out.push(f);
    if let Some(quota) = machine.quota_millis.filter(|quota| *quota < demand.workers.saturating_mul(1000)) {
        let mut f = finding(
            "CPU quota",
            format!("{}.{}", quota / 1000, quota % 1000 / 100),
            format_number(demand.workers),
            None,
            true,
        );
        f.verdict = FindingVerdict::Note;
        f.why =
            "the container is suspended for the rest of each period once its quota is used up: responses stall".into();
        f.remedy = format!("worker_processes {};", (quota / 1000).max(1));
        out.push(f);
    }
    out
}

/// With thousands separators.
pub fn format_number(n: u64) -> String {
    if n >= 1 << 60 {
        return "no limit".into();
    }
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// In a unit with at most four digits.
pub fn format_bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KB", "MB", "GB"] {
        if value < 1000.0 {
            return if unit == "B" || value >= 100.0 {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> DoctorMachine {
        DoctorMachine {
            descriptors_soft: Some(1024),
            descriptors_hard: Some(4096),
            descriptors_all: Some(u64::MAX),
            accept_queue: Some(128),
            handshakes: Some(128),
            syn_cookies: Some(true),
            ports: Some((32768, 60999)),
            memory: Some(1 << 30),
            processors: Some(2),
            ..DoctorMachine::default()
        }
    }

    fn demand() -> Demand {
        Demand {
            workers: 2,
            connections_each: 10_000,
            addresses: vec![("0.0.0.0:80".into(), 511)],
            upstreams: 1,
            head_bytes: 33 << 10,
            proxy_bytes: 72 << 10,
            ..Demand::default()
        }
    }

    fn of(findings: &[Finding], name: &str) -> Finding {
        findings.iter().find(|f| f.name == name).cloned().expect("it is examined")
    }

    #[test]
    fn descriptors_bind_first_and_the_command_says_how_many() {
        let findings = examine_machine(&machine(), &demand());
        let files = of(&findings, "open files");
        assert_eq!(files.verdict, FindingVerdict::Short);
        assert_eq!(files.connections, Some((4096 - demand().standing()) / 2));
        assert!(files.remedy.contains("LimitNOFILE=40960"), "{}", files.remedy);
        assert_eq!(first_to_bind(&findings, &demand()).0, "open files");
        let root = DoctorMachine { root: true, ..machine() };
        assert!(of(&examine_machine(&root, &demand()), "open files").remedy.contains("worker_rlimit_nofile 20480;"));
    }

    #[test]
    fn a_backlog_that_the_kernel_cuts_is_short_and_cookies_excuse_handshakes() {
        let findings = examine_machine(&machine(), &demand());
        assert_eq!(of(&findings, "accept queue").verdict, FindingVerdict::Short);
        assert_eq!(of(&findings, "handshakes").verdict, FindingVerdict::Fine);
        let without = DoctorMachine { syn_cookies: Some(false), ..machine() };
        assert_eq!(of(&examine_machine(&without, &demand()), "handshakes").verdict, FindingVerdict::Short);
    }

    #[test]
    fn ports_matter_to_proxies_alone() {
        assert_eq!(of(&examine_machine(&machine(), &demand()), "ports to upstreams").connections, Some(28_232));
        let files = Demand { upstreams: 0, ..demand() };
        assert!(examine_machine(&machine(), &files).iter().all(|f| !f.name.contains("upstream")));
    }

    #[test]
    fn ports_on_loopback_do_not_rest_where_the_kernel_reuses_them() {
        let of_reuse = |reuse, local| {
            let machine = DoctorMachine { reuse: Some(reuse), ..machine() };
            of(&examine_machine(&machine, &Demand { upstreams_local: local, ..demand() }), "new upstream connections")
        };
        assert_eq!((of_reuse(2, true).here.as_str(), of_reuse(2, true).verdict), ("reused", FindingVerdict::Fine));
        assert_eq!((of_reuse(2, false).here.as_str(), of_reuse(2, false).verdict), ("470/s", FindingVerdict::Note));
        assert_eq!(of_reuse(1, false).verdict, FindingVerdict::Fine);
        assert_eq!(of_reuse(0, true).verdict, FindingVerdict::Note);
    }

    #[test]
    fn outgoing_connections_may_not_take_what_servers_listen_on() {
        assert!(examine_machine(&machine(), &demand()).iter().all(|f| f.name != "outgoing ports"));
        let wide = DoctorMachine { ports: Some((1024, 65_535)), ..machine() };
        let low = of(&examine_machine(&wide, &demand()), "outgoing ports");
        assert!(low.verdict == FindingVerdict::Note && low.remedy.contains("10240"), "{low:?}");
        let high = Demand { addresses: vec![("0.0.0.0:40080".into(), 511)], ..demand() };
        let own = of(&examine_machine(&machine(), &high), "outgoing ports");
        assert!(own.remedy.ends_with("ip_local_reserved_ports=40080"), "{own:?}");
    }

    #[test]
    fn memory_is_a_note_while_idle_connections_fit() {
        let memory = of(&examine_machine(&machine(), &demand()), "memory");
        assert_eq!(memory.verdict, FindingVerdict::Note);
        let small = DoctorMachine { memory: Some(10 << 20), ..machine() };
        assert_eq!(of(&examine_machine(&small, &demand()), "memory").verdict, FindingVerdict::Short);
    }

    #[test]
    fn a_machine_with_room_leaves_the_configuration_to_bind() {
        let big = DoctorMachine {
            descriptors_hard: Some(1 << 20),
            accept_queue: Some(4096),
            memory: Some(64 << 30),
            ..machine()
        };
        let findings = examine_machine(&big, &demand());
        assert!(findings.iter().all(|f| f.verdict != FindingVerdict::Short), "{findings:?}");
        assert_eq!(first_to_bind(&findings, &demand()), ("worker_connections", 20_000));
    }

    #[test]
    fn quic_needs_buffers_segmentation_and_an_open_port() {
        let quic = Demand { quic_ports: vec![443, 8443], quic_without_gso: true, ..demand() };
        let old = DoctorMachine {
            receive_buffer: Some(212_992),
            kernel: Some((4, 9)),
            tracked_max: Some(1 << 20),
            ..machine()
        };
        let findings = examine_machine(&old, &quic);
        let buffer = of(&findings, "UDP receive buffer");
        assert_eq!(
            (buffer.verdict, buffer.remedy.as_str()),
            (FindingVerdict::Note, "sysctl -w net.core.rmem_max=2097152")
        );
        assert_eq!(of(&findings, "UDP segmentation").verdict, FindingVerdict::Fine, "it is not asked for");
        assert!(of(&findings, "firewall").remedy.contains("udp dport { 443, 8443 } accept"));
        let new = DoctorMachine { receive_buffer: Some(4 << 20), kernel: Some((6, 1)), ..machine() };
        let findings = examine_machine(&new, &quic);
        assert_eq!(of(&findings, "UDP receive buffer").verdict, FindingVerdict::Fine);
        assert_eq!(of(&findings, "UDP segmentation").remedy, "quic_gso on;");
        assert!(findings.iter().all(|f| f.name != "firewall"));
        let findings = examine_machine(&old, &Demand { quic_without_gso: false, ..quic });
        assert_eq!(of(&findings, "UDP segmentation").remedy, "Linux 4.18 or newer");
        assert!(examine_machine(&old, &demand()).iter().all(|f| !f.name.starts_with("UDP") && f.name != "firewall"));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(format_number(1_048_576), "1,048,576");
        assert_eq!(format_number(u64::MAX), "no limit");
        assert_eq!(
            (format_bytes(512), format_bytes(4352), format_bytes(3 << 30)),
            ("512 B".into(), "4.2 KB".into(), "3.0 GB".into())
        );
    }
}
