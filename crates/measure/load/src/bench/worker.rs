//! Load from several machines: workers wait for jobs, the coordinator distributes shares over a [`link`](super::link).
//! The coordinator proves the secret by HMAC-SHA-256 over the worker's nonce and the job. Every worker runs by its own
//! clock from `go`; histograms and counts are merged, and intervals by number.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use aws_lc_rs::{hmac, rand};
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::link::{LinkHandle, LinkRefusal, LinkTls, PATIENCE, WorkerLink, explain_link};
use super::wire::WireOutcome;
use super::{FAILED, OK, USAGE};
use crate::engine::job::Job;
use crate::engine::run::{MachinePart, RunControl, RunOutcome, prepare_requests, run_job};

#[derive(Serialize, Deserialize)]
struct Hello {
    protocol: String,
    number: String,
    threads: usize,
}

/// First message of a worker.
#[derive(Deserialize)]
#[serde(untagged)]
enum WorkerGreeting {
    Hello(Hello),
    Refusal(LinkRefusal),
}

#[derive(Serialize, Deserialize)]
struct WorkerOrder {
    job: String,
    proof: String,
}

#[derive(Serialize, Deserialize)]
enum WorkerReply {
    Ready,
    /// Sign of life during a run.
    Running,
    Refused(String),
    Done(Box<WireOutcome>),
}

const PROTOCOL: &str = "tidegate-bench/7";

/// Waits for jobs of a coordinator (`tidegate bench --workers HOST:PORT,... --secret FILE URL`) and generates its share of
/// their load.
#[derive(Parser)]
#[command(name = "tidegate bench worker")]
struct Args {
    /// Address to listen on.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7117", value_parser = super::values::parse_address)]
    listen: SocketAddr,
    /// File with the secret shared with the coordinator.
    #[arg(long, value_name = "FILE")]
    secret: PathBuf,
    /// Certificate of this worker, with its chain (PEM): coordinators are then accepted over TLS only.
    #[arg(long, value_name = "FILE", requires_all = ["key", "cacert"])]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// CA certificates (PEM) that coordinators' certificates must be of.
    #[arg(long, value_name = "FILE", requires = "cert")]
    cacert: Option<PathBuf>,
    /// Exit after N jobs; 0 means never.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = super::values::parse_number::<usize>)]
    jobs: usize,
    /// Maximum duration of a job; longer jobs are refused.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = super::values::positive_time)]
    longest: f64,
    /// Client threads [default: one per CPU].
    #[arg(short, long, value_name = "N", value_parser = super::values::parse_positive)]
    threads: Option<usize>,
}

/// The options, for help texts.
pub fn worker_command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs `tidegate bench worker`; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let args = std::iter::once(OsString::from("tidegate bench worker")).chain(args);
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(e) => return crate::print_usage(&e),
    };
    let secret = match super::requests::read_text(&args.secret) {
        Ok(text) if text.trim().len() >= 16 => text.trim().to_string(),
        Ok(_) => {
            eprintln!("tidegate bench worker: the secret must have 16 characters or more");
            return USAGE;
        }
        Err(message) => {
            eprintln!("tidegate bench worker: {message}");
            return USAGE;
        }
    };
    let tls = match (&args.cert, &args.key, &args.cacert) {
        (Some(cert), Some(key), Some(authorities)) => LinkTls::read(cert, key, authorities).map(Some),
        _ => Ok(None),
    };
    let access = match tls.and_then(|tls| WorkerAccess::new(secret, tls)) {
        Ok(access) => access,
        Err(message) => {
            eprintln!("tidegate bench worker: {message}");
            return USAGE;
        }
    };
    let listener = match TcpListener::bind(args.listen) {
        Ok(listener) => listener,
        Err(e) => {
            eprintln!("tidegate bench worker: {}: {e}", args.listen);
            return FAILED;
        }
    };
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    eprintln!("tidegate bench worker: listening on {}", listener.local_addr().unwrap_or(args.listen));
    match serve_coordinators(&listener, &access, args.jobs, args.longest, threads) {
        Ok(()) => OK,
        Err(message) => {
            eprintln!("tidegate bench worker: {message}");
            FAILED
        }
    }
}

/// Credentials of the links between a coordinator and its workers.
#[derive(Clone, Debug)]
pub struct WorkerAccess {
    secret: String,
    tls: Option<LinkTls>,
}

impl WorkerAccess {
    /// Access with a secret, in cleartext or over TLS. Fails on a key that does not belong to its certificate.
    pub fn new(secret: String, tls: Option<LinkTls>) -> Result<WorkerAccess, String> {
        // Both roles have the same certificate and key.
        tls.as_ref().map(LinkTls::worker_config).transpose()?;
        Ok(WorkerAccess { secret, tls })
    }
}

/// Serves coordinators in sequence until `jobs` jobs are done (0: forever). Fails when the listener fails; failures of
/// a coordinator go to standard error.
pub fn serve_coordinators(
    listener: &TcpListener,
    access: &WorkerAccess,
    jobs: usize,
    longest: f64,
    threads: usize,
) -> Result<(), String> {
    let mut done = 0;
    let tls = access.tls.as_ref().map(LinkTls::worker_config).transpose()?;
    while jobs == 0 || done < jobs {
        let (stream, peer) = listener.accept().map_err(|e| format!("accept: {e}"))?;
        let link = WorkerLink::accept(stream, tls.as_ref());
        match link.and_then(|link| serve(link, &access.secret, longest, threads)) {
            Ok(()) => done += 1,
            Err(message) => eprintln!("tidegate bench worker: {peer}: {message}"),
        }
    }
    Ok(())
}

fn serve(mut link: WorkerLink, secret: &str, longest: f64, threads: usize) -> Result<(), String> {
    let number = fresh_number()?;
    link.send(&Hello { protocol: PROTOCOL.into(), number: number.clone(), threads })?;
    let order: WorkerOrder = link.receive()?;
    let proof = unhex(&order.proof).unwrap_or_default();
    if hmac::verify(&key(secret), message(&number, &order.job).as_bytes(), &proof).is_err() {
        // Tells a guessing client nothing more.
        let _ = link.send(&WorkerReply::Refused("the secret is wrong".into()));
        return Err("wrong secret".into());
    }
    let job: Job = serde_json::from_str(&order.job).map_err(|e| format!("job: {e}"))?;
    let refuse = |link: &mut WorkerLink, why: String| {
        let _ = link.send(&WorkerReply::Refused(why.clone()));
        Err(why)
    };
    let length = job.profile.seconds() + job.warmup;
    if length > longest || length.is_nan() {
        return refuse(&mut link, format!("the job lasts {length:.0} s, longer than the {longest:.0} s allowed here"));
    }
    if let Err(why) = prepare_requests(&job) {
        return refuse(&mut link, why);
    }
    link.send(&WorkerReply::Ready)?;
    let _go: String = link.receive()?;
    let control = RunControl::default();
    let watch = link.watch(&control.stop, &WorkerReply::Running)?;
    let outcome = run_job(&job, &control, |_| ());
    if watch.end() {
        return Err("the coordinator disconnected during a run; the run was stopped".into());
    }
    link.patience(PATIENCE)?;
    match outcome {
        Ok(outcome) => link.send(&WorkerReply::Done(Box::new(WireOutcome::pack(&outcome)))),
        Err(why) => refuse(&mut link, why),
    }
}

/// Distributes a job's shares to all workers, starts them together, and merges their reports; passes on a stop.
/// Fails when any worker is unreachable, refuses, fails or is lost: the load would not be the requested one.
pub fn coordinate_workers(
    workers: &[String],
    access: &WorkerAccess,
    job: &Job,
    control: &RunControl,
) -> Result<RunOutcome, String> {
    let mut links = Vec::new();
    let mut hellos = Vec::new();
    for name in workers {
        let (link, hello) = connect_worker(name, access.tls.as_ref()).map_err(|e| format!("worker {name}: {e}"))?;
        links.push(link);
        hellos.push(hello);
    }
    // Every world takes an equal share, so all machines use the smallest machine's number of threads.
    let threads = hellos.iter().map(|h: &Hello| h.threads).min().unwrap_or(1).max(1);
    for (i, (link, hello)) in links.iter_mut().zip(&hellos).enumerate() {
        let share = Job { share: (i, workers.len()), threads, cores: Vec::new(), ..job.clone() };
        let text = serde_json::to_string(&share).map_err(|e| format!("job: {e}"))?;
        let proof = hex(hmac::sign(&key(&access.secret), message(&hello.number, &text).as_bytes()).as_ref());
        let reply = link.send(&WorkerOrder { job: text, proof }).and_then(|()| link.receive());
        match reply.map_err(|why| format!("worker {}: {}", workers[i], explain_link(&why)))? {
            WorkerReply::Ready => {}
            WorkerReply::Refused(why) => return Err(format!("worker {}: {why}", workers[i])),
            WorkerReply::Running | WorkerReply::Done(_) => {
                return Err(format!("worker {} answers out of turn", workers[i]));
            }
        }
    }
    let begin = Instant::now();
    for link in &mut links {
        link.send(&"go")?;
    }
    let skew = begin.elapsed();
    control.began.get_or_init(Instant::now);
    if skew > Duration::from_millis(50) {
        eprintln!("tidegate bench: the workers started up to {} ms apart", skew.as_millis());
    }
    let length = job.warmup + job.profile.seconds() + job.timeout + job.connect_timeout;
    let end = begin + Duration::from_secs_f64(length) + PATIENCE;
    let handles: Vec<LinkHandle> = links.iter().filter_map(WorkerLink::handle).collect();
    let stoppers: Vec<LinkHandle> = links.iter().filter_map(WorkerLink::handle).collect();
    let (sender, replies) = mpsc::channel();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (mut link, name) in links.into_iter().zip(workers) {
            let sender = sender.clone();
            scope.spawn(move || drop(sender.send((name, await_reply(&mut link, end)))));
        }
        drop(sender);
        scope.spawn(|| pass_on(&control.stop, &over, stoppers));
        let merged = collect(&replies, begin);
        over.store(true, Ordering::Relaxed);
        // A worker whose link closes stops; otherwise a loss would leave the others running.
        handles.iter().for_each(LinkHandle::close);
        merged
    })
}

/// Waits for the end of a worker's run, as long as it gives signs of life.
fn await_reply(link: &mut WorkerLink, end: Instant) -> Result<WorkerReply, String> {
    loop {
        match link.receive()? {
            WorkerReply::Running if Instant::now() < end => {}
            WorkerReply::Running => return Err("it did not end in time".into()),
            reply => return Ok(reply),
        }
    }
}

fn pass_on(stop: &AtomicBool, over: &AtomicBool, mut links: Vec<LinkHandle>) {
    while !over.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            links.iter_mut().for_each(LinkHandle::stop);
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Merges the workers' reports until all are in or one fails.
fn collect(
    replies: &mpsc::Receiver<(&String, Result<WorkerReply, String>)>,
    begin: Instant,
) -> Result<RunOutcome, String> {
    let mut merged = RunOutcome::default();
    for (name, reply) in replies {
        let after = begin.elapsed().as_secs_f64();
        match reply {
            Ok(WorkerReply::Done(outcome)) => {
                let outcome = outcome.unpack()?;
                merged.machines.push(MachinePart::new(name, &outcome));
                merged.merge(outcome);
            }
            Ok(WorkerReply::Refused(why)) => return Err(format!("worker {name}: {why}")),
            Ok(WorkerReply::Ready | WorkerReply::Running) => return Err(format!("worker {name} answers out of turn")),
            Err(why) => {
                return Err(format!(
                    "worker {name} was lost {after:.1} s after the start ({why}): its share of the load was missing from then on, \
                     so there are no figures; the other workers were stopped"
                ));
            }
        }
    }
    // Replies come in any order.
    merged.machines.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(merged)
}

fn connect_worker(name: &str, tls: Option<&LinkTls>) -> Result<(WorkerLink, Hello), String> {
    let addresses = name.to_socket_addrs().map_err(|e| e.to_string())?;
    let mut last = "has no address".to_string();
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                let mut link = WorkerLink::open(stream, tls.map(|tls| tls.connect(name)).transpose()?)?;
                // A refused certificate shows with the first message.
                return match link.receive().map_err(|why| explain_link(&why))? {
                    WorkerGreeting::Refusal(refusal) => Err(refusal.refused),
                    WorkerGreeting::Hello(hello) if hello.protocol != PROTOCOL => {
                        Err(format!("speaks {}, not {PROTOCOL}", hello.protocol))
                    }
                    WorkerGreeting::Hello(hello) => Ok((link, hello)),
                };
            }
            Err(e) => last = e.to_string(),
        }
    }
    Err(last)
}

fn key(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

fn message(number: &str, job: &str) -> String {
    format!("{number}\n{job}")
}

fn fresh_number() -> Result<String, String> {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).map_err(|_| "no randomness".to_string())?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}
