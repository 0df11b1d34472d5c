//! Generated comparisons with a real nginx: a few directives, put into random places of a configuration that has all kinds of
//! blocks, and the same requests to both servers. Answers are compared byte for byte, order of lines included, and so are access
//! log, error log and what `-t` says. What differs is reduced to the directives that make it differ.
//!
//! `--h2c` and `--h3` send the requests over HTTP/2 in clear and over HTTP/3.
//!
//! With `--mutate` one of the directives is written as people get it wrong (`mutate.rs`); `--sni` has several servers on one TLS
//! listener instead (`sni.rs`). With `--gateways` the locations use FastCGI, SCGI, uwsgi and memcached (`gateways.rs`, `gateway.rs`),
//! with `--peers` HTTP/2, gRPC and TLS (`peers.rs`). With `--documents` they rewrite generated documents (`documents.rs`).
//! `--stream` and `--mail` compare the other areas, `--tls` handshakes and client certificates, `--frames` HTTP/2 frame by frame. `--groups`,
//! `--caches` and `--connections` compare sequences of requests (`sequences/`). `--check` compares `-t` alone (`check.rs`). `--apache` compares
//! .htaccess files and virtual hosts with a real Apache (`apache/`).
//!
//! `cargo xtask compare --seed N --count N` runs it by hand without bound; `cargo xtask ci` runs a few with a fixed seed.

#![forbid(unsafe_code)]

mod apache;
mod backend;
mod broken;
mod check;
mod documents;
mod frames;
mod gateway;
mod gateways;
mod mail;
mod mutate;
mod normal;
mod peers;
mod place;
mod pool;
mod sequences;
mod server;
mod site;
mod sni;
mod stream;
mod tls;

pub use server::Binary;

use backend::Backend;
use cases::Over;
use place::BlockPlace;
use pool::PoolFragment;
use server::ServerRun;

/// Subject of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Directives of the http area in their places.
    #[default]
    Http,
    /// Documents that filters rewrite, instead of the proxy.
    Documents,
    /// FastCGI, SCGI, uwsgi and memcached instead of the proxy.
    Gateways,
    /// Upstream servers that speak HTTP/2, gRPC and TLS.
    Peers,
    /// Several servers on one TLS listener.
    Sni,
    Stream,
    Mail,
    /// TLS servers of both areas, and clients of all kinds.
    Tls,
    /// Frames of HTTP/2 clients, good and faulty ones.
    Frames,
    /// Frames of HTTP/2 servers behind the proxies, good and faulty ones.
    UpstreamFrames,
    /// Upstream groups whose servers fail.
    Groups,
    /// Stored responses over time.
    Caches,
    /// Valid and broken requests over one connection.
    Connections,
    /// Apache's rules: a real Apache instead of nginx.
    Apache,
    /// Results of `-t` for examples of all directives with a wrong word.
    Check,
}

pub struct Plan {
    pub ours: Binary,
    pub nginx: Binary,
    pub seed: u64,
    pub count: u64,
    /// Filters fragments by text.
    pub only: Option<String>,
    /// Text that a fragment of every configuration must contain.
    pub with: Option<String>,
    pub mode: Mode,
    /// Protocol of the requests: HTTP/1.1 or HTTP/2 in clear, or HTTP/3.
    pub over: Over,
    /// Applies a typing mistake to one directive of each configuration.
    pub mutate: bool,
    /// Stops after this many differences.
    pub differences_max: usize,
}

impl Plan {
    /// Returns the lines of a plan whose locations pass requests to other servers than the proxied ones.
    fn own_lines(&self) -> Option<Vec<&'static str>> {
        match self.mode {
            Mode::Gateways => Some(gateways::gateway_lines()),
            Mode::Peers => Some(peers::peer_lines()),
            Mode::Documents => Some(documents::document_lines()),
            _ => None,
        }
    }
}

/// Deterministic for a seed (xorshift64*).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n.max(1)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedFragment {
    pub text: &'static str,
    pub place: BlockPlace,
}

impl std::fmt::Display for PlacedFragment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:<12} {}", self.place.name(), self.text)
    }
}

/// Selects the directives of one configuration.
fn draw(dice: &mut Dice, pool: &[PoolFragment], first: &[PoolFragment]) -> Vec<PlacedFragment> {
    const MOST: usize = 4;
    let count = 1 + dice.below(MOST);
    let mut puts: Vec<PlacedFragment> = (0..count)
        .map(|index| {
            let pool = if index == 0 { first } else { pool };
            let fragment = &pool[dice.below(pool.len())];
            PlacedFragment { text: fragment.text, place: fragment.places[dice.below(fragment.places.len())] }
        })
        .collect();
    // nginx announces a body to the copy's server that it does not send, and that server waits for it; see the manual.
    if puts.iter().any(|put| put.text.starts_with("mirror_request_body")) {
        puts.retain(|put| put.text != "mirror /p/mirror;");
    }
    // The values of the copy's log line stand in nginx's line of the request itself; see the manual.
    let any = |puts: &[PlacedFragment], start: &str| puts.iter().any(|put| put.text.starts_with(start));
    if any(&puts, "log_subrequest") {
        puts.retain(|put| !put.text.starts_with("mirror /"));
    }
    // After a 412 nginx takes its connection for broken: subrequests end at once, and one may do the action in its own name. The
    // file of a body that it has removed it cannot send again.
    if any(&puts, "post_action") {
        const CLASHING: [&str; 3] = ["mirror /", "auth_request /", "client_body_in_file_only"];
        puts.retain(|put| !CLASHING.iter().any(|start| put.text.starts_with(start)));
    }
    puts
}

/// Tells whether a request is comparable only over HTTP/1: work after the response continues beside the next request,
/// which HTTP/2 sends on another connection.
fn is_of_http1(put: &PlacedFragment) -> bool {
    ["post_action", "mirror /"].iter().any(|start| put.text.starts_with(start))
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Differences, with the directives that cause them; or the reason why the run failed.
pub fn compare_http(plan: &Plan) -> Result<String, String> {
    match plan.mode {
        Mode::Check => return check::compare_checks(plan),
        Mode::Apache => return apache::compare_apache(plan, &plan.nginx.path),
        Mode::Sni => return sni::compare_sni(plan),
        Mode::Stream => return stream::compare_stream(plan),
        Mode::Mail => return mail::compare_mail(plan),
        Mode::Tls => return tls::compare_tls(plan),
        Mode::Frames => return frames::compare_frames(plan),
        Mode::UpstreamFrames => return frames::upstream::compare_upstream(plan),
        Mode::Groups | Mode::Caches | Mode::Connections => return sequences::compare_sequences(plan),
        Mode::Http | Mode::Documents | Mode::Gateways | Mode::Peers => {}
    }
    let mut backend = Backend::start().map_err(|e| format!("the server behind: {e}"))?;
    if plan.mode == Mode::Peers {
        backend.peer = Some(peers::Peer::start(&plan.nginx)?);
    }
    let own_lines = plan.own_lines();
    let mut differences = Vec::new();
    let has_streams = plan.over != Over::H1;
    let broken =
        if has_streams || plan.mutate || own_lines.is_some() { (0, Vec::new()) } else { broken::compare_broken(plan)? };
    differences.extend(broken.1.into_iter().map(|words| format!("broken request: {words}")));
    let all = |text: Option<&str>| {
        let mut all = pool::version_fragments(plan.nginx.version, text);
        if let Some(lines) = &own_lines {
            // The proxied locations are left out.
            all.retain(|fragment| !fragment.text.contains(" /p/"));
            all.retain(|fragment| plan.mode != Mode::Documents || !documents::is_left_out(fragment.text));
            all.extend(pool::line_fragments(lines, plan.nginx.version, text));
        }
        all
    };
    let pool = all(plan.only.as_deref());
    let with = match (plan.with.as_deref(), &own_lines) {
        (None, Some(lines)) => pool::line_fragments(lines, plan.nginx.version, plan.only.as_deref()),
        (with, _) => all(with),
    };
    if pool.is_empty() || with.is_empty() {
        return Err("no directive holds that text".into());
    }
    let (mut refused, mut twice_wrong, mut known, mut answers) = (0, 0, 0, broken.0);
    for index in 0..plan.count {
        if differences.len() >= plan.differences_max {
            break;
        }
        let mut dice = Dice::new(plan.seed.wrapping_add(index));
        let first = if plan.with.is_some() || own_lines.is_some() { &with } else { &pool };
        let mut puts = draw(&mut dice, &pool, first);
        if plan.mutate {
            mutate::mutate_puts(&mut dice, &mut puts);
        }
        if has_streams {
            puts.retain(|put| !is_of_http1(put));
            // nginx has no `Host` of a request over HTTP/3.
            puts.retain(|put| plan.over != Over::H3 || !put.text.contains("$http_host"));
            if puts.is_empty() {
                continue;
            }
        }
        let seed = plan.seed.wrapping_add(index);
        let outcome = one(plan, &backend, &puts, seed).map_err(|words| format!("seed {seed}: {words}"))?;
        refused += u64::from(outcome.refused);
        answers += outcome.answers;
        let Some(first) = outcome.difference else { continue };
        let (puts, words) = reduce(plan, &backend, puts, first, seed)?;
        // Each of two directives alone is refused by both in the same words, once their block is looked at as a whole. Which of the
        // two is named is a matter of the order of modules.
        if puts.len() == 2 && outcome.of_a_whole_block {
            twice_wrong += 1;
            continue;
        }
        let is_known_mistake = match puts.as_slice() {
            [put] => plan.mutate && mutate::known_difference(put.text).is_some(),
            _ => false,
        };
        if is_known_mistake || is_deliberate(&puts, &words) {
            known += 1;
            continue;
        }
        let lines: Vec<String> = puts.iter().map(|put| format!("    {put}")).collect();
        let documents = if plan.mode == Mode::Documents { documents::shown_documents(seed) } else { String::new() };
        differences.push(format!("seed {seed}:\n{}\n{words}{documents}", lines.join("\n")));
    }
    let summary = format!(
        "{} configurations ({refused} refused by both, {twice_wrong} for another of two reasons, {known} of a known difference), {answers} answers compared with {}",
        plan.count, plan.nginx.shown
    );
    result(summary, &differences)
}

/// Deliberate differences: beginnings of the directives that cause one, and text of its report.
const DELIBERATE: &[(&[&str], &str)] = &[
    // PUT into a missing directory: nginx responds 500.
    (&["dav_methods "], "tidegate: HTTP/1.1 409 "),
    (&["dav_methods "], "tidegate: HTTP/2 409"),
    (&["dav_methods "], "tidegate: HTTP/3 409"),
    // nginx sends the trailers twice, once for the subrequest.
    (&["add_trailer ", "add_after_body "], ""),
];

/// Tells whether directives to which a difference was reduced cause a deliberate one.
fn is_deliberate(puts: &[PlacedFragment], words: &str) -> bool {
    DELIBERATE.iter().any(|(starts, shown)| {
        let causes = |put: &PlacedFragment| starts.iter().any(|start| put.text.starts_with(start));
        puts.iter().all(causes) && words.contains(shown)
    })
}

/// Ends a comparison: the summary, and the differences as an error.
fn result(summary: String, differences: &[String]) -> Result<String, String> {
    match differences {
        [] => Ok(summary),
        _ => Err(format!("{summary}\n\n{}", differences.join("\n\n"))),
    }
}

struct CompareOutcome {
    refused: bool,
    /// Errors that nginx reports when it merges levels.
    of_a_whole_block: bool,
    answers: usize,
    difference: Option<String>,
}

fn one(plan: &Plan, backend: &Backend, puts: &[PlacedFragment], seed: u64) -> Result<CompareOutcome, String> {
    let requests = match plan.mode {
        Mode::Gateways => gateways::REQUESTS.iter().collect(),
        Mode::Peers => peers::REQUESTS.iter().collect(),
        Mode::Documents => documents::REQUESTS.iter().collect(),
        _ => pool::version_requests(plan.nginx.version),
    };
    let run = |binary: &Binary| {
        backend.forget();
        ServerRun::of(
            binary,
            &|dirs, port| {
                if plan.mode == Mode::Documents
                    && let Err(e) = documents::write_documents(dirs, seed)
                {
                    // The comparison shows it: the server lacks its files.
                    eprintln!("documents: {e}");
                }
                site::site_config(puts, dirs, port, backend, binary, plan)
            },
            &requests,
            plan.over,
            Some(backend.port),
        )
    };
    let (mut theirs, mut ours) = (run(&plan.nginx)?, run(&plan.ours)?);
    if plan.over == Over::H3 && theirs.answers.iter().any(|answer| answer.starts_with(server::SILENCE)) {
        // A new connection of nginx's sometimes gets no answer.
        theirs = run(&plan.nginx)?;
    }
    if plan.mode == Mode::Peers {
        theirs.answers.iter_mut().chain(&mut ours.answers).for_each(normal::lower_names);
        for line in theirs.errors.iter_mut().chain(&mut ours.errors) {
            *line = normal::without_http2_details(line);
        }
    }
    if plan.mode == Mode::Documents {
        // nginx's action is that of the latest subrequest, and the order of subrequests depends on its buffers.
        for line in theirs.errors.iter_mut().chain(&mut ours.errors) {
            *line = line.replace(" while sending response to client", "").replace(" while sending to client", "");
        }
        theirs.access.iter_mut().chain(&mut ours.access).for_each(normal::without_boundary);
        theirs.answers.iter_mut().chain(&mut ours.answers).for_each(|answer| normal::without_seconds(answer));
        // nginx closes the connections of some pages with two filters and an include.
        for (theirs, ours) in theirs.answers.iter().zip(&mut ours.answers) {
            if theirs.is_empty() && ours.starts_with(b"HTTP/1.1 200") {
                ours.clear();
            }
        }
        theirs.errors.sort();
        ours.errors.sort();
    }
    if plan.over == Over::H3 {
        theirs.access.iter_mut().chain(&mut ours.access).for_each(normal::without_malformed_length);
        ours.errors.iter_mut().for_each(normal::without_host);
        theirs.errors.retain(|line| !line.starts_with("[info] quic "));
    }
    let refused = theirs.refused.is_some() && ours.refused.is_some();
    let of_a_whole_block =
        refused && theirs.refused.as_ref().is_some_and(|words| normal::line_of(words) == Some(theirs.last_line));
    Ok(CompareOutcome {
        refused,
        of_a_whole_block,
        answers: theirs.answers.len(),
        difference: normal::first_difference(&requests, &theirs, &ours),
    })
}

/// Removes directives that do not contribute to a difference.
fn reduce(
    plan: &Plan,
    backend: &Backend,
    mut puts: Vec<PlacedFragment>,
    mut words: String,
    seed: u64,
) -> Result<(Vec<PlacedFragment>, String), String> {
    let mut at = 0;
    while at < puts.len() && puts.len() > 1 {
        let mut fewer = puts.clone();
        fewer.remove(at);
        match one(plan, backend, &fewer, seed)?.difference {
            Some(still) => (puts, words) = (fewer, still),
            None => at += 1,
        }
    }
    Ok((puts, words))
}
