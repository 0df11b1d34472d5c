//! Load from several machines: workers wait for jobs, the coordinator distributes shares as lines of JSON.
//! The coordinator proves the secret by HMAC-SHA-256 over the worker's nonce and the job. Every worker runs by its own
//! clock from `go`; histograms and counts are merged, and intervals by number.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use aws_lc_rs::{hmac, rand};
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::wire::WireOutcome;
use super::{FAILED, OK, USAGE};
use crate::engine::job::Job;
use crate::engine::run::{MachinePart, RunControl, RunOutcome, prepare_requests, run_job};

/// Longest message in bytes; an hour's outcome fits.
const MESSAGE_MAX: u64 = 256 * 1024 * 1024;
/// Longest wait for anything but the run itself.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Serialize, Deserialize)]
struct Hello {
    protocol: String,
    number: String,
    threads: usize,
}

#[derive(Serialize, Deserialize)]
struct WorkerOrder {
    job: String,
    proof: String,
}

#[derive(Serialize, Deserialize)]
enum WorkerReply {
    Ready,
    Refused(String),
    Done(Box<WireOutcome>),
}

const PROTOCOL: &str = "tidegate-bench/4";

/// Waits for jobs of a coordinator (`tidegate bench --workers HOST:PORT,... --secret FILE URL`) and generates its share of
/// their load.
#[derive(Parser)]
#[command(name = "tidegate bench worker")]
struct Args {
    /// Address to listen on.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7117", value_parser = super::cli::parse_address)]
    listen: SocketAddr,
    /// File with the secret shared with the coordinator.
    #[arg(long, value_name = "FILE")]
    secret: PathBuf,
    /// Exit after N jobs; 0 means never.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = super::cli::parse_number::<usize>)]
    jobs: usize,
    /// Maximum duration of a job; longer jobs are refused.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = super::cli::positive_time)]
    longest: f64,
    /// Client threads [default: one per CPU].
    #[arg(short, long, value_name = "N", value_parser = super::cli::parse_positive)]
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
    let listener = match TcpListener::bind(args.listen) {
        Ok(listener) => listener,
        Err(e) => {
            eprintln!("tidegate bench worker: {}: {e}", args.listen);
            return FAILED;
        }
    };
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    eprintln!("tidegate bench worker: listening on {}", listener.local_addr().unwrap_or(args.listen));
    match serve_coordinators(&listener, &secret, args.jobs, args.longest, threads) {
        Ok(()) => OK,
        Err(message) => {
            eprintln!("tidegate bench worker: {message}");
            FAILED
        }
    }
}

/// Serves coordinators in sequence until `jobs` jobs are done (0: forever). Fails when the listener fails; failures of
/// a coordinator go to standard error.
pub fn serve_coordinators(
    listener: &TcpListener,
    secret: &str,
    jobs: usize,
    longest: f64,
    threads: usize,
) -> Result<(), String> {
    let mut done = 0;
    while jobs == 0 || done < jobs {
        let (stream, peer) = listener.accept().map_err(|e| format!("accept: {e}"))?;
        match serve(stream, secret, longest, threads) {
            Ok(()) => done += 1,
            Err(message) => eprintln!("tidegate bench worker: {peer}: {message}"),
        }
    }
    Ok(())
}

fn serve(stream: TcpStream, secret: &str, longest: f64, threads: usize) -> Result<(), String> {
    let mut link = WorkerLink::new(stream)?;
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
    let watch = link.watch(&control.stop)?;
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

/// Detects the closing of a link during a run.
struct LinkWatch {
    done: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<bool>,
}

impl LinkWatch {
    fn end(self) -> bool {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or(false)
    }
}

/// Distributes a job's shares to all workers, starts them together, and merges their reports; passes on a stop.
/// Fails when any worker is unreachable, refuses, fails or is lost: the load would not be the requested one.
pub fn coordinate_workers(
    workers: &[String],
    secret: &str,
    job: &Job,
    control: &RunControl,
) -> Result<RunOutcome, String> {
    let mut links = Vec::new();
    let mut hellos = Vec::new();
    for name in workers {
        let (link, hello) = WorkerLink::connect(name).map_err(|e| format!("worker {name}: {e}"))?;
        links.push(link);
        hellos.push(hello);
    }
    // Every world takes an equal share, so all machines use the smallest machine's number of threads.
    let threads = hellos.iter().map(|h: &Hello| h.threads).min().unwrap_or(1).max(1);
    for (i, (link, hello)) in links.iter_mut().zip(&hellos).enumerate() {
        let share = Job { share: (i, workers.len()), threads, cores: Vec::new(), ..job.clone() };
        let text = serde_json::to_string(&share).map_err(|e| format!("job: {e}"))?;
        let proof = hex(hmac::sign(&key(secret), message(&hello.number, &text).as_bytes()).as_ref());
        link.send(&WorkerOrder { job: text, proof })?;
        match link.receive()? {
            WorkerReply::Ready => {}
            WorkerReply::Refused(why) => return Err(format!("worker {}: {why}", workers[i])),
            WorkerReply::Done(_) => return Err(format!("worker {} answers out of turn", workers[i])),
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
    for link in &links {
        link.patience(Duration::from_secs_f64(length) + PATIENCE)?;
    }
    let closers: Vec<TcpStream> = links.iter().filter_map(|l| l.writer.try_clone().ok()).collect();
    let (sender, replies) = mpsc::channel();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (mut link, name) in links.into_iter().zip(workers) {
            let sender = sender.clone();
            scope.spawn(move || drop(sender.send((name, link.receive::<WorkerReply>()))));
        }
        drop(sender);
        scope.spawn(|| pass_on(&control.stop, &over, &closers));
        let merged = collect(&replies, begin);
        over.store(true, Ordering::Relaxed);
        // A worker whose link closes stops; otherwise a loss would leave the others running.
        closers.iter().for_each(|s| drop(s.shutdown(Shutdown::Both)));
        merged
    })
}

fn pass_on(stop: &AtomicBool, over: &AtomicBool, links: &[TcpStream]) {
    while !over.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            links.iter().for_each(|mut link| drop(link.write_all(b"\n")));
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
            Ok(WorkerReply::Ready) => return Err(format!("worker {name} answers out of turn")),
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

struct WorkerLink {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl WorkerLink {
    fn new(stream: TcpStream) -> Result<WorkerLink, String> {
        let writer = stream.try_clone().map_err(|e| e.to_string())?;
        let link = WorkerLink { reader: BufReader::new(stream), writer };
        let _ = link.writer.set_nodelay(true);
        link.patience(PATIENCE)?;
        Ok(link)
    }

    fn connect(name: &str) -> Result<(WorkerLink, Hello), String> {
        let addresses = name.to_socket_addrs().map_err(|e| e.to_string())?;
        let mut last = "has no address".to_string();
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    let mut link = WorkerLink::new(stream)?;
                    let hello: Hello = link.receive()?;
                    if hello.protocol != PROTOCOL {
                        return Err(format!("speaks {}, not {PROTOCOL}", hello.protocol));
                    }
                    return Ok((link, hello));
                }
                Err(e) => last = e.to_string(),
            }
        }
        Err(last)
    }

    fn patience(&self, time: Duration) -> Result<(), String> {
        let set = self.writer.set_read_timeout(Some(time)).and_then(|()| self.writer.set_write_timeout(Some(PATIENCE)));
        set.map_err(|e| e.to_string())
    }

    /// Sets `stop` when the peer closes or sends anything (a stop that still waits for the figures) while a run keeps
    /// this thread busy.
    fn watch(&self, stop: &Arc<AtomicBool>) -> Result<LinkWatch, String> {
        let mut stream = self.writer.try_clone().map_err(|e| e.to_string())?;
        self.patience(Duration::from_millis(200))?;
        let done = Arc::new(AtomicBool::new(false));
        let (over, stop) = (done.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match stream.read(&mut [0]) {
                    Err(e)
                        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                    }
                    Ok(1..) => stop.store(true, Ordering::Relaxed),
                    _ => {
                        stop.store(true, Ordering::Relaxed);
                        return true;
                    }
                }
            }
            false
        });
        Ok(LinkWatch { done, thread })
    }

    fn send<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let mut text = serde_json::to_string(message).map_err(|e| e.to_string())?;
        text.push('\n');
        self.writer.write_all(text.as_bytes()).map_err(|e| e.to_string())
    }

    fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        let read = (&mut self.reader).take(MESSAGE_MAX).read_line(&mut line).map_err(|e| e.to_string())?;
        if read == 0 {
            return Err("the connection was closed".into());
        }
        serde_json::from_str(&line).map_err(|e| format!("unexpected message: {e}"))
    }
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
