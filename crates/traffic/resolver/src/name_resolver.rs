//! Resolves names (A, AAAA) over UDP, or TCP for truncated answers, cached per thread by TTL (nginx: `ngx_resolver.c`).
//! `message.rs` encodes, `sockets.rs` and `wire.rs` transport, `memory.rs` shares questions and answers.

use crate::address::ResolvedAddress;
use crate::failure::ResolveFailure;
use crate::memory::{NameMemory, forget_failure, recall_or_ask};
use crate::message::{Message, NO_ERROR, Question, RecordType};
use crate::wire::{ServiceRecord, over_tcp, pointer_name, random_byte, read_records, service_records};
use crate::words::Word;
use base::clock::{self, Instant};
use metrics::{MetricZone, process, resolver as row};
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Time without an answer until the query goes to the next server.
const RESEND: Duration = Duration::from_secs(5);
pub(crate) const ALIASES_MAX: usize = 50;
/// Maximum number of addresses per name.
pub(crate) const ADDRESSES_MAX: usize = 256;

/// A name server of a `resolver` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameServer {
    /// Its address.
    Address(SocketAddr),
    /// Name for the system, looked up on use.
    Named(String, u16),
}

impl NameServer {
    async fn address(&self) -> Option<SocketAddr> {
        match self {
            NameServer::Address(address) => Some(*address),
            NameServer::Named(host, port) => runtime::io::lookup_host(host, *port).await.ok()?.first().copied(),
        }
    }
}

/// A `resolver` line. Equal lines share remembered names within a thread.
#[derive(Debug)]
pub struct NameResolver {
    /// Name servers, asked in turn.
    pub servers: Vec<NameServer>,
    /// `valid=`: replaces the TTLs.
    pub valid: Option<Duration>,
    /// Asks for IPv4 addresses.
    pub ipv4: bool,
    /// Asks for IPv6 addresses.
    pub ipv6: bool,
    turn: AtomicUsize,
    zone: Option<MetricZone<row::Of>>,
}

thread_local! {
    static NAMES: NameMemory<Rc<[IpAddr]>> = RefCell::new(HashMap::new());
    /// Names of addresses, by `1.0.0.127.in-addr.arpa`.
    static POINTERS: NameMemory<Rc<str>> = RefCell::new(HashMap::new());
}

/// Reverse name of an address (RFC 1035, 3.5; RFC 3596, 2.5).
fn arpa(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let nibbles = ip.octets().into_iter().rev().map(|byte| format!("{:x}.{:x}.", byte & 15, byte >> 4));
            nibbles.collect::<String>() + "ip6.arpa"
        }
    }
}

impl NameResolver {
    /// Creates a resolver without counts.
    pub fn new(servers: Vec<NameServer>, valid: Option<Duration>, ipv4: bool, ipv6: bool) -> NameResolver {
        NameResolver { servers, valid, ipv4, ipv6, turn: AtomicUsize::new(0), zone: None }
    }
    /// Counts requests and responses in a zone of this name (`status_zone`).
    #[must_use]
    pub fn counted_as(self, name: &str) -> NameResolver {
        NameResolver { zone: Some(MetricZone::named(&[name])), ..self }
    }
    fn count_request(&self, kind: RecordType) {
        let kind = match kind {
            RecordType::A | RecordType::Aaaa => 0,
            RecordType::Srv => 1,
            RecordType::Ptr => 2,
        };
        process::RESOLVER_REQUESTS.up_at(kind);
        if let Some(zone) = &self.zone {
            zone.up_at(row::REQUESTS, kind);
        }
    }
    fn count_response(&self, said: Result<(), ResolveFailure>) {
        let code = match said {
            Ok(()) => 0,
            Err(ResolveFailure::Format) => 1,
            Err(ResolveFailure::Server) => 2,
            Err(ResolveFailure::NoSuchName) => 3,
            Err(ResolveFailure::Unimplemented) => 4,
            Err(ResolveFailure::Refused) => 5,
            Err(ResolveFailure::TimedOut) => 6,
            Err(ResolveFailure::TooMany | ResolveFailure::Other) => 7,
        };
        process::RESOLVER_RESPONSES.up_at(code);
        if let Some(zone) = &self.zone {
            zone.up_at(row::RESPONSES, code);
        }
    }
    /// Equal lines share names, also over reloads.
    fn identity(&self) -> String {
        format!("{:?} {:?} {} {}", self.servers, self.valid, self.ipv4, self.ipv6)
    }

    fn key(&self, name: &str) -> crate::memory::NameKey {
        (self.identity(), name.trim_end_matches('.').to_ascii_lowercase())
    }

    /// Addresses of a name, within a `LocalSet`. Fails with `TimedOut` after `timeout`.
    pub async fn resolve(self: &Arc<Self>, name: &str, timeout: Duration) -> Result<Rc<[IpAddr]>, ResolveFailure> {
        let (addresses, _, from_memory) = self.known_or_asked(name, timeout).await?;
        if !from_memory || addresses.len() < 2 {
            return Ok(addresses);
        }
        // Rotates the servers.
        let start = usize::from(random_byte()) % addresses.len();
        Ok(addresses.iter().cycle().skip(start).take(addresses.len()).copied().collect())
    }

    /// Addresses of a name and the time that they hold, for look-ups in the background: waits until a remembered failure
    /// has expired. Otherwise as [`NameResolver::resolve`].
    pub async fn look(
        self: &Arc<Self>,
        name: &str,
        timeout: Duration,
    ) -> Result<(Rc<[IpAddr]>, Duration), ResolveFailure> {
        forget_failure(&NAMES, &self.key(name)).await;
        let (addresses, until, _) = self.known_or_asked(name, timeout).await?;
        clock::update();
        Ok((addresses, Duration::from_micros(until.micros_since(clock::now()))))
    }

    /// The flag tells a cached result.
    async fn known_or_asked(
        self: &Arc<Self>,
        name: &str,
        timeout: Duration,
    ) -> Result<(Rc<[IpAddr]>, Instant, bool), ResolveFailure> {
        let key = self.key(name);
        let (resolver, asked) = (self.clone(), key.1.clone());
        let ask = async move {
            let (addresses, ttl) = resolver.look_up(&asked).await?;
            Ok((addresses.into(), ttl))
        };
        recall_or_ask(&NAMES, key, self.valid, self.servers.len(), timeout, ask).await
    }

    /// Name of an address, lower-case without a final dot, within a `LocalSet`.
    pub async fn name_of(self: &Arc<Self>, address: IpAddr, timeout: Duration) -> Result<Rc<str>, ResolveFailure> {
        let name = arpa(address);
        let (resolver, asked) = (self.clone(), name.clone());
        let ask = async move { resolver.pointer(asked).await };
        let key = (self.identity(), name);
        let (name, ..) = recall_or_ask(&POINTERS, key, self.valid, self.servers.len(), timeout, ask).await?;
        Ok(name)
    }

    async fn pointer(&self, mut name: String) -> Result<(Rc<str>, u32), ResolveFailure> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for _ in 0..ALIASES_MAX {
            let message = self.ask(&name, RecordType::Ptr, turn).await?;
            match pointer_name(&message, &name) {
                Ok((found, ttl)) => return Ok((found.as_str().into(), ttl)),
                Err(Some(alias)) => name = alias,
                Err(None) if message.records.is_empty() => return Err(ResolveFailure::NoSuchName),
                Err(None) => return Err(ResolveFailure::Other),
            }
        }
        Err(ResolveFailure::NoSuchName)
    }

    /// Both address types, along aliases, with their TTL. Follows an alias only if neither type has addresses, as the
    /// last queried type says (nginx: `ngx_resolver_process_a`, where the last answer decides).
    async fn look_up(&self, name: &str) -> Result<(Vec<IpAddr>, u32), ResolveFailure> {
        let mut name = name.to_string();
        let mut ttl = u32::MAX;
        for _ in 0..ALIASES_MAX {
            // All questions of a name go to one server; names rotate.
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let (v4, v6) = tokio::join!(
                async { if self.ipv4 { Some(self.ask(&name, RecordType::A, turn).await) } else { None } },
                async { if self.ipv6 { Some(self.ask(&name, RecordType::Aaaa, turn).await) } else { None } },
            );
            let (mut addresses, mut alias) = (Vec::new(), None);
            for (answer, kind) in [(v4, RecordType::A), (v6, RecordType::Aaaa)] {
                let Some(answer) = answer else { continue };
                let answer = answer?;
                let found = read_records(&answer, &name, kind);
                ttl = ttl.min(found.ttl);
                addresses.extend(found.addresses);
                alias = if answer.records.is_empty() { None } else { found.alias.or(alias) };
            }
            addresses.truncate(ADDRESSES_MAX);
            match alias {
                _ if !addresses.is_empty() => return Ok((addresses, ttl)),
                Some(alias) => name = alias,
                None => return Err(ResolveFailure::NoSuchName),
            }
        }
        Err(ResolveFailure::NoSuchName)
    }

    /// Servers of a service by SRV records, with their TTL; reports targets without addresses to `say`.
    pub async fn service(
        self: &Arc<Self>,
        host: &str,
        service: &str,
        timeout: Duration,
        say: &impl Fn(Word<'_>),
    ) -> Result<(Vec<ResolvedAddress>, Duration), ResolveFailure> {
        let host = host.trim_end_matches('.');
        // `http` is short for `_http._tcp`.
        let full = match service.starts_with('_') || service.contains('.') {
            true => format!("{service}.{host}"),
            false => format!("_{service}._tcp.{host}"),
        };
        let asked = runtime::time::with_timeout(timeout, self.service_records(full.to_ascii_lowercase())).await;
        let (records, ttl) = asked.map_err(|_| ResolveFailure::TimedOut)??;
        let (mut found, mut failed, mut first) = (Vec::new(), Vec::new(), None);
        let mut valid = self.valid.unwrap_or(Duration::from_secs(u64::from(ttl)));
        for record in &records {
            match self.look(&record.target, timeout).await {
                Ok((addresses, holds)) => {
                    valid = valid.min(holds);
                    // Of those that have addresses the first are the servers, the others their backups.
                    let first = *first.get_or_insert(record.priority);
                    found.extend(addresses.iter().map(|ip| ResolvedAddress {
                        address: SocketAddr::new(*ip, record.port),
                        record: Some((record.target.clone(), record.weight)),
                        backup: record.priority != first,
                    }));
                }
                Err(why) => {
                    say(Word::Target { host: &record.target, service, of: host, why });
                    failed.push(why);
                }
            }
        }
        if found.is_empty() {
            let none = failed.iter().find(|why| **why == ResolveFailure::NoSuchName).or(failed.first());
            return Err(none.copied().unwrap_or(ResolveFailure::NoSuchName));
        }
        Ok((found, valid))
    }

    async fn service_records(&self, mut name: String) -> Result<(Vec<ServiceRecord>, u32), ResolveFailure> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut ttl = u32::MAX;
        for _ in 0..ALIASES_MAX {
            let message = self.ask(&name, RecordType::Srv, turn).await?;
            let (found, alias, seconds) = service_records(&message, &name);
            ttl = ttl.min(seconds);
            match alias {
                Some(alias) if found.is_empty() => name = alias,
                _ if found.is_empty() => return Err(ResolveFailure::NoSuchName),
                _ => return Ok((found, ttl)),
            }
        }
        Err(ResolveFailure::NoSuchName)
    }

    async fn ask(&self, name: &str, kind: RecordType, turn: usize) -> Result<Message, ResolveFailure> {
        let mut step = 0;
        loop {
            let server = &self.servers[(turn + step) % self.servers.len().max(1)];
            step += 1;
            let began = base::clock::now();
            let Some(server) = server.address().await else {
                runtime::time::sleep_until(began.plus(RESEND)).await;
                continue;
            };
            let id = u16::from_le_bytes([random_byte(), random_byte()]);
            let question = Question { id, name: name.to_string(), kind };
            let bytes = question.bytes().ok_or(ResolveFailure::NoSuchName)?;
            self.count_request(kind);
            let asked = runtime::time::with_timeout(RESEND, async {
                let answer = crate::sockets::query(server, name, kind).await?;
                if answer.truncated { over_tcp(server, &bytes, &question).await } else { Ok(answer) }
            });
            match asked.await {
                Ok(Ok(answer)) => {
                    let said = if answer.code == NO_ERROR { Ok(()) } else { Err(ResolveFailure::of(answer.code)) };
                    self.count_response(said);
                    return said.map(|()| answer);
                }
                // An unreachable server is not retried at once.
                Ok(Err(_)) => {
                    runtime::time::sleep_until(began.plus(RESEND)).await;
                    self.count_response(Err(ResolveFailure::TimedOut));
                }
                Err(_) => self.count_response(Err(ResolveFailure::TimedOut)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Data, DnsRecord, Message, build};
    use runtime::io::UdpSocket;

    #[test]
    fn asks_again_elsewhere_and_keeps_what_it_was_told() {
        runtime::block_on(async {
            let server = UdpSocket::bind(([127, 0, 0, 1], 0).into()).unwrap();
            let resolver =
                Arc::new(NameResolver::new(vec![NameServer::Address(server.local_addr().unwrap())], None, true, false));
            let serve = runtime::task::spawn_local(async move {
                let mut buf = [0; 512];
                let (n, from) = server.recv_from(&mut buf).await.unwrap();
                // First noise and an answer with a wrong number.
                server.send_to(b"noise", from).await.unwrap();
                let data = Data::Address(IpAddr::from([127, 0, 0, 9]));
                let mut answer = build::answer(&buf[..n], 0, &[DnsRecord { name: "one.test".into(), ttl: 60, data }]);
                answer[1] ^= 1;
                server.send_to(&answer, from).await.unwrap();
                answer[1] ^= 1;
                server.send_to(&answer, from).await.unwrap();
            });
            let second = Duration::from_secs(2);
            let both = tokio::join!(resolver.resolve("one.test", second), resolver.resolve("ONE.test", second));
            let want: Rc<[IpAddr]> = vec![IpAddr::from([127, 0, 0, 9])].into();
            assert_eq!(both, (Ok(want.clone()), Ok(want.clone())));
            serve.await.unwrap();
            assert_eq!(resolver.resolve("one.test", second).await, Ok(want), "from memory: nobody answers any more");
            let quick = Duration::from_millis(20);
            assert_eq!(resolver.resolve("two.test", quick).await, Err(ResolveFailure::TimedOut));
        });
    }

    fn known(name: &str, kind: u16) -> (u8, Vec<Data>) {
        let v4 = |last| Data::Address(IpAddr::from([127, 0, 0, last]));
        let v6 = || Data::Address(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]));
        let alias = |to: &str| Data::Alias(to.into());
        let service = |priority, weight, port, to: &str| Data::Service { priority, weight, port, target: to.into() };
        let found = match (name, kind) {
            ("both", 1) => vec![v4(1)],
            ("both", 28) => vec![v6()],
            ("half", 1) => vec![v4(2)],
            ("half", _) => return (2, Vec::new()),
            // An alias is not followed if the other type has an address.
            ("mixed", 1) => vec![v4(3)],
            ("mixed", 28) => vec![alias("both")],
            ("alias", 28) => vec![alias("both")],
            // The last queried type has nothing.
            ("empty", 1) => vec![alias("both")],
            ("circle", _) => vec![alias("circle")],
            ("9.0.0.127.in-addr.arpa", 12) => vec![Data::Pointer("nine.example".into())],
            ("6.0.0.127.in-addr.arpa", 12) => vec![Data::Other],
            ("8.0.0.127.in-addr.arpa", 12) => vec![alias("9.0.0.127.in-addr.arpa")],
            (name, 1) if name.len() == 255 => vec![v4(4)],
            ("_http._tcp.s", 33) => {
                vec![service(2, 1, 82, "mixed"), service(1, 7, 81, "both"), service(1, 1, 80, "half")]
            }
            _ => Vec::new(),
        };
        (0, found)
    }

    #[test]
    fn names_under_which_names_of_addresses_are_asked_for() {
        assert_eq!(arpa([127, 0, 0, 1].into()), "1.0.0.127.in-addr.arpa");
        let name = arpa("2001:db8::1".parse().expect("an address"));
        assert_eq!(name, "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa");
    }

    #[test]
    fn kinds_of_addresses_aliases_and_services() {
        runtime::block_on(async {
            let server = UdpSocket::bind(([127, 0, 0, 1], 0).into()).unwrap();
            let address = NameServer::Address(server.local_addr().unwrap());
            let resolver = Arc::new(NameResolver::new(vec![address], None, true, true));
            runtime::task::spawn_local(async move {
                let mut buf = [0; 512];
                while let Ok((n, from)) = server.recv_from(&mut buf).await {
                    let (name, kind) = Message::read(&buf[..n]).unwrap().question.unwrap();
                    let (code, found) = known(&name, kind);
                    let found = found.into_iter().map(|data| DnsRecord { name: name.clone(), ttl: 60, data });
                    let answer = build::answer(&buf[..n], code, &found.collect::<Vec<_>>());
                    server.send_to(&answer, from).await.unwrap();
                }
            });
            let second = Duration::from_secs(5);
            let (one, six) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]));
            let both: Rc<[IpAddr]> = vec![one, six].into();
            assert_eq!(resolver.resolve("both", second).await, Ok(both.clone()));
            assert_eq!(resolver.resolve("half", second).await, Err(ResolveFailure::Server), "half an answer is none");
            assert_eq!(resolver.resolve("mixed", second).await, Ok(vec![IpAddr::from([127, 0, 0, 3])].into()));
            assert_eq!(resolver.resolve("alias", second).await, Ok(both));
            assert_eq!(resolver.resolve("empty", second).await, Err(ResolveFailure::NoSuchName));
            let long = ["a".repeat(63), "b".repeat(63), "c".repeat(63), "d".repeat(63)].join(".");
            assert_eq!(resolver.resolve(&long, second).await, Ok(vec![IpAddr::from([127, 0, 0, 4])].into()));
            assert_eq!(resolver.resolve("a..b", second).await, Err(ResolveFailure::NoSuchName));
            assert_eq!(resolver.resolve("circle", second).await, Err(ResolveFailure::NoSuchName));
            assert_eq!(resolver.resolve("nobody", second).await, Err(ResolveFailure::NoSuchName));

            let told = RefCell::new(Vec::new());
            let say = |word: Word<'_>| told.borrow_mut().push(word.to_string());
            let (found, valid) = resolver.service("s", "http", second, &say).await.unwrap();
            let short: Vec<_> = found.iter().map(|f| (f.address.to_string(), f.record.clone(), f.backup)).collect();
            let record = |name: &str, weight| Some((name.to_string(), weight));
            let wanted = [
                ("127.0.0.1:81".to_string(), record("both", 7), false),
                ("[::1]:81".to_string(), record("both", 7), false),
                ("127.0.0.3:82".to_string(), record("mixed", 1), true),
            ];
            assert_eq!(short, wanted);
            assert!(valid <= Duration::from_secs(60));
            assert_eq!(resolver.name_of([127, 0, 0, 9].into(), second).await.as_deref(), Ok("nine.example"));
            assert_eq!(
                resolver.name_of([127, 0, 0, 8].into(), second).await.as_deref(),
                Ok("nine.example"),
                "an alias"
            );
            assert_eq!(resolver.name_of([127, 0, 0, 7].into(), second).await, Err(ResolveFailure::NoSuchName));
            assert_eq!(resolver.name_of([127, 0, 0, 6].into(), second).await, Err(ResolveFailure::Other));
            let words = "half could not be resolved (2: Server failure) while resolving service http of s";
            assert_eq!(*told.borrow(), [words]);
        });
    }
}
