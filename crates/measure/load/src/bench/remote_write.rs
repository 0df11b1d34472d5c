//! Sends metrics to collectors during a run: Prometheus remote write 1.0 (`WriteRequest` in protobuf, snappy block
//! format, POST), InfluxDB's line protocol ([`influx`]) and OTLP ([`otlp`]).
//! A separate thread sends, so that a slow collector does not disturb the load; samples beyond its queue are dropped
//! and counted, and the ends of all runs share one allowance of waiting time.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::requests::{self, RequestUrl};
use super::{influx, otlp};

/// Queued writes at most.
const QUEUE_MAX: usize = 16;
/// Longest time of one write, from connecting to the status line.
const PATIENCE: Duration = Duration::from_secs(2);
/// Total time that the ends of all runs of a command may wait for queued writes.
const AT_THE_END: Duration = Duration::from_secs(3);
/// Bytes of a response that are read.
const ANSWER_MAX: usize = 4096;
const NO_ANSWER: &str = "it does not respond";

/// One value of a series, with its labels (`__name__` among them).
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesSample {
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// Protocol of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesFormat {
    RemoteWrite,
    /// With the token of version 2.
    Influx {
        token: Option<String>,
    },
    Otlp,
}

impl SeriesFormat {
    /// Option of the command line.
    pub fn option(&self) -> &'static str {
        match self {
            SeriesFormat::RemoteWrite => "--metrics",
            SeriesFormat::Influx { .. } => "--influx",
            SeriesFormat::Otlp => "--otlp",
        }
    }

    fn encode(&self, samples: &[SeriesSample], start: i64, at: i64) -> Vec<u8> {
        match self {
            SeriesFormat::RemoteWrite => snappy(&write_request(samples, at)),
            SeriesFormat::Influx { .. } => influx::influx_lines(samples, at),
            SeriesFormat::Otlp => otlp::metrics_request(samples, start, at),
        }
    }

    /// Header fields of a write.
    fn fields(&self) -> String {
        match self {
            SeriesFormat::RemoteWrite => {
                "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n".into()
            }
            SeriesFormat::Influx { token } => {
                let token = token.as_ref().map_or(String::new(), |token| format!("Authorization: Token {token}\r\n"));
                format!("Content-Type: text/plain; charset=utf-8\r\n{token}")
            }
            SeriesFormat::Otlp => "Content-Type: application/x-protobuf\r\n".into(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct SeriesCollector {
    format: SeriesFormat,
    url: RequestUrl,
    address: SocketAddr,
    /// Remaining waiting time of the runs' ends.
    allowance: Arc<Mutex<Duration>>,
}

impl SeriesCollector {
    /// Parses the URL and checks that the collector accepts connections.
    pub fn new(text: &str, format: SeriesFormat) -> Result<SeriesCollector, String> {
        let wrong = |why: String| format!("{} {text}: {why}", format.option());
        if let Some((scheme, _)) = text.split_once("://")
            && !scheme.to_ascii_lowercase().starts_with("http")
        {
            return Err(wrong(format!("`{scheme}` is no collector over HTTP: write http://HOST:PORT")));
        }
        let mut url = RequestUrl::parse(text).map_err(&wrong)?;
        if url.tls {
            return Err(wrong("only collectors with http:// are supported".into()));
        }
        match format {
            SeriesFormat::RemoteWrite => {}
            SeriesFormat::Influx { .. } => url.path = influx::write_target(&url.path).map_err(&wrong)?,
            SeriesFormat::Otlp => url.path = otlp::export_target(&url.path),
        }
        let address = requests::resolve_name(&url.host, url.port).map_err(&wrong)?;
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| wrong(e.to_string()))?;
        Ok(SeriesCollector { format, url, address, allowance: Arc::new(Mutex::new(AT_THE_END)) })
    }

    fn post(&self, body: &[u8], patience: Duration) -> Result<(), String> {
        let limit = Instant::now() + patience;
        let mut stream = TcpStream::connect_timeout(&self.address, patience).map_err(|e| e.to_string())?;
        let limits = stream.set_write_timeout(Some(patience));
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: tidegate-bench/{}\r\n{}Content-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.url.path,
            self.url.host,
            self.url.port,
            env!("CARGO_PKG_VERSION"),
            self.format.fields(),
            body.len()
        );
        let sent = limits.and_then(|()| stream.write_all(head.as_bytes())).and_then(|()| stream.write_all(body));
        sent.map_err(|e| e.to_string())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 512]);
        while !answer.windows(2).any(|w| w == b"\r\n") && answer.len() < ANSWER_MAX {
            // A limit per read alone would let a dripping response last for hours.
            let left = limit.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NO_ANSWER.into());
            }
            let read = stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer));
            match read {
                Ok(0) => break,
                Ok(n) => answer.extend_from_slice(&buffer[..n]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(NO_ANSWER.into());
                }
                Err(e) => return Err(e.to_string()),
            }
        }
        let line = String::from_utf8_lossy(answer.split(|b| *b == b'\r').next().unwrap_or_default()).into_owned();
        match line.split(' ').nth(1) {
            Some(status) if status.starts_with('2') => Ok(()),
            Some(status) => Err(format!("it responds with {status}")),
            None => Err(NO_ANSWER.into()),
        }
    }
}

pub struct Sender {
    format: SeriesFormat,
    /// Time of the start in milliseconds since 1970.
    start: i64,
    queue: Option<SyncSender<Vec<u8>>>,
    allowance: Arc<Mutex<Duration>>,
    /// Writes queued, and writes accepted by the collector.
    made: u64,
    taken: Arc<AtomicU64>,
    /// Set when the owner has stopped waiting.
    over: Arc<AtomicBool>,
    /// First reason of a loss; closed when the thread ends.
    reasons: Receiver<String>,
}

impl Sender {
    /// Starts the thread that sends; `start` is the begin of the counters in milliseconds since 1970.
    pub fn new(collector: SeriesCollector, start: i64) -> Sender {
        let format = collector.format.clone();
        let (queue, writes) = sync_channel::<Vec<u8>>(QUEUE_MAX);
        let (tell, reasons) = channel();
        let (taken, over, allowance) =
            (Arc::new(AtomicU64::new(0)), Arc::<AtomicBool>::default(), collector.allowance.clone());
        let (count, end) = (taken.clone(), over.clone());
        std::thread::spawn(move || {
            for body in writes {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                match collector.post(&body, PATIENCE) {
                    Ok(()) => drop(count.fetch_add(1, Ordering::Relaxed)),
                    Err(reason) => drop(tell.send(reason)),
                }
            }
        });
        Sender { format, start, queue: Some(queue), allowance, made: 0, taken, over, reasons }
    }

    /// Queues samples of a time (milliseconds since 1970); drops them when the queue is full.
    pub fn send(&mut self, samples: &[SeriesSample], at: i64) {
        let body = self.format.encode(samples, self.start, at);
        self.made += 1;
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(body);
        }
    }

    /// Waits for queued writes within the shared allowance; returns a sentence about losses. A hanging thread ends by
    /// itself.
    pub fn finish(mut self) -> Option<String> {
        drop(self.queue.take());
        let begin = Instant::now();
        let mut allowance = self.allowance.lock().unwrap_or_else(|broken| broken.into_inner());
        let mut why = None;
        loop {
            match self.reasons.recv_timeout(allowance.saturating_sub(begin.elapsed())) {
                Ok(reason) => drop(why.get_or_insert(reason)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.over.store(true, Ordering::Relaxed);
                    break;
                }
            }
        }
        *allowance = allowance.saturating_sub(begin.elapsed());
        let missing = self.made - self.taken.load(Ordering::Relaxed);
        let why = why.unwrap_or_else(|| "it was too slow".into());
        (missing > 0).then(|| {
            let (option, made) = (self.format.option(), self.made);
            format!("the collector of {option} missed {missing} of {made} intervals: {why}")
        })
    }
}

/// Appends a protobuf varint.
pub fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length-delimited protobuf field (wire type 2) with a number below 16.
pub fn push_field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    push_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Encodes `WriteRequest { repeated TimeSeries timeseries = 1 }`, `TimeSeries { repeated Label labels = 1; repeated
/// Sample samples = 2 }`, `Label { string name = 1; string value = 2 }`, `Sample { double value = 1; int64 timestamp =
/// 2 }`. Labels are sorted.
fn write_request(samples: &[SeriesSample], at: i64) -> Vec<u8> {
    let mut out = Vec::new();
    for sample in samples {
        let mut labels: Vec<&(String, String)> = sample.labels.iter().collect();
        labels.sort();
        let (mut series, mut part) = (Vec::new(), Vec::new());
        for (name, value) in labels {
            part.clear();
            push_field(1, name.as_bytes(), &mut part);
            push_field(2, value.as_bytes(), &mut part);
            push_field(1, &part, &mut series);
        }
        part.clear();
        part.push(1 << 3 | 1);
        part.extend_from_slice(&sample.value.to_le_bytes());
        part.push(2 << 3);
        push_varint(at as u64, &mut part);
        push_field(2, &part, &mut series);
        push_field(1, &series, &mut out);
    }
    out
}

/// Snappy's block format with literals only, in pieces of up to 65,536 bytes.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    push_varint(bytes.len() as u64, &mut out);
    for piece in bytes.chunks(1 << 16) {
        // Tag 61: a two-byte length minus one follows.
        out.push(61 << 2);
        out.extend_from_slice(&((piece.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn sample(name: &str, value: f64) -> SeriesSample {
        let labels = [("run", "a"), ("__name__", name)].map(|(n, v)| (n.to_string(), v.to_string())).to_vec();
        SeriesSample { labels, value }
    }

    #[test]
    fn a_write_request_is_what_the_schema_says() {
        let bytes = write_request(&[sample("up", 1.0)], 1000);
        let label = |name: &str, value: &str| {
            let mut part = vec![0x0a, name.len() as u8];
            part.extend(name.as_bytes());
            part.extend([0x12, value.len() as u8]);
            part.extend(value.as_bytes());
            [vec![0x0a, part.len() as u8], part].concat()
        };
        let value = [vec![0x09], 1.0f64.to_le_bytes().to_vec(), vec![0x10, 0xe8, 0x07]].concat();
        let series = [label("__name__", "up"), label("run", "a"), vec![0x12, value.len() as u8], value].concat();
        assert_eq!(bytes, [vec![0x0a, series.len() as u8], series].concat());
        assert_eq!(snappy(b"abc"), [3, 61 << 2, 2, 0, b'a', b'b', b'c']);
        assert_eq!(snappy(&[7; 70_000]).len(), 70_000 + 3 + 2 * 3);
    }

    #[test]
    fn a_collector_gets_every_interval_or_it_is_said() {
        for (status, words) in [("204 No Content", None), ("500 Oops", Some("responds with 500"))] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let mut heads = Vec::new();
                // The first connection is the check of [`SeriesCollector::new`].
                for stream in listener.incoming().take(4) {
                    let mut stream = stream.unwrap();
                    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
                    while !bytes.ends_with(b"\x10\xe8\x07") {
                        match stream.read(&mut buffer).unwrap() {
                            0 => break,
                            n => bytes.extend_from_slice(&buffer[..n]),
                        }
                    }
                    let _ = stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes());
                    heads.push(String::from_utf8_lossy(&bytes).into_owned());
                }
                heads
            });
            let mut sender = Sender::new(SeriesCollector::new(&url, SeriesFormat::RemoteWrite).unwrap(), 0);
            (0..3).for_each(|i| sender.send(&[sample("x", f64::from(i))], 1000));
            let said = sender.finish();
            assert_eq!(said.is_some(), words.is_some());
            assert!(said.unwrap_or_default().contains(words.unwrap_or_default()));
            let heads = server.join().unwrap();
            assert!(heads[1..].iter().all(|head| head.starts_with("POST /api/v1/write HTTP/1.1\r\n")));
            assert!(
                heads[1..].iter().all(|head| head.contains("Content-Encoding: snappy") && head.contains("__name__"))
            );
        }
        assert!(
            SeriesCollector::new("https://127.0.0.1:1/", SeriesFormat::Otlp).is_err()
                && SeriesCollector::new("http://127.0.0.1:1/", SeriesFormat::RemoteWrite).is_err()
        );
    }

    #[test]
    fn a_collector_that_never_answers_holds_the_ends_of_all_runs_back_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut collector =
            SeriesCollector::new(&format!("http://{}/", listener.local_addr().unwrap()), SeriesFormat::Otlp).unwrap();
        collector.allowance = Arc::new(Mutex::new(Duration::from_millis(30)));
        for _ in 0..5 {
            let mut sender = Sender::new(collector.clone(), 0);
            (0..20).for_each(|i| sender.send(&[sample("x", f64::from(i))], 1000));
            let said = sender.finish().unwrap();
            assert!(said.contains("missed 20 of 20 intervals: it was too slow"), "{said}");
        }
        assert_eq!(*collector.allowance.lock().unwrap(), Duration::ZERO);
    }

    #[test]
    fn influx_and_otlp_get_their_own_posts() {
        let token = Some("secret".to_string());
        for (format, path, words) in [
            (
                SeriesFormat::Influx { token },
                "/?org=o&bucket=b",
                "POST /api/v2/write?org=o&bucket=b&precision=ms HTTP/1.1\r\n",
            ),
            (SeriesFormat::Influx { token: None }, "/?db=d", "POST /write?db=d&precision=ms HTTP/1.1\r\n"),
            (SeriesFormat::Otlp, "/", "POST /v1/metrics HTTP/1.1\r\n"),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}{path}", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let mut stream = listener.incoming().nth(1).unwrap().unwrap();
                let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
                let ends = |bytes: &[u8]| {
                    let text = String::from_utf8_lossy(bytes).into_owned();
                    let (head, _) = text.split_once("\r\n\r\n")?;
                    let length = head.split_once("Content-Length: ")?.1.lines().next()?.parse::<usize>().ok()?;
                    Some(head.len() + 4 + length)
                };
                while ends(&bytes).is_none_or(|end| bytes.len() < end) {
                    let n = stream.read(&mut buffer).unwrap();
                    bytes.extend_from_slice(&buffer[..n]);
                }
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
                String::from_utf8_lossy(&bytes).into_owned()
            });
            let mut sender = Sender::new(SeriesCollector::new(&url, format.clone()).unwrap(), 500);
            sender.send(&[sample("x", 1.0)], 1000);
            assert_eq!(sender.finish(), None);
            let seen = server.join().unwrap();
            assert!(seen.starts_with(words), "{seen}");
            let has_token = seen.contains("\r\nAuthorization: Token secret\r\n");
            assert_eq!(has_token, format == SeriesFormat::Influx { token: Some("secret".into()) });
            assert_eq!(seen.contains("x,run=a value=1 1000\n"), matches!(format, SeriesFormat::Influx { .. }));
        }
        for scheme in ["grpc", "ws", "ftp"] {
            let why = SeriesCollector::new(&format!("{scheme}://127.0.0.1:1/"), SeriesFormat::Otlp).unwrap_err();
            assert!(why.contains("write http://"), "{why}");
        }
        let why = SeriesCollector::new("http://127.0.0.1:1/", SeriesFormat::Influx { token: None }).unwrap_err();
        assert!(why.starts_with("--influx http://127.0.0.1:1/: the URL has no db"), "{why}");
    }

    #[test]
    fn an_answer_that_drips_has_one_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector =
            SeriesCollector::new(&format!("http://{}/", listener.local_addr().unwrap()), SeriesFormat::Otlp).unwrap();
        let server = std::thread::spawn(move || {
            let mut stream = listener.incoming().nth(1).unwrap().unwrap();
            while stream.write_all(b"H").is_ok() {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        assert_eq!(collector.post(b"x", Duration::from_millis(20)), Err(NO_ANSWER.to_string()));
        server.join().unwrap();
    }
}
