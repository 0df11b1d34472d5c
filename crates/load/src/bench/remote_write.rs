//! Metrics sent to a collector while a run goes on: Prometheus' remote write protocol, version 1.0 (a `WriteRequest` in protobuf, in
//! snappy's block format, by POST).
//!
//! A thread of its own sends, so that a slow collector does not disturb the load. What does not fit into its queue is dropped and
//! counted: the report at the end has everything.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::requests::{self, Url};

/// Writes that wait for the collector.
const QUEUE_MAX: usize = 16;
/// How long the collector may take for one.
const PATIENCE: Duration = Duration::from_secs(2);
/// So much of an answer is looked at.
const ANSWER_MAX: usize = 4096;

/// One series with its present value: labels by name (`__name__` among them).
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// Where the collector is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    url: Url,
    address: SocketAddr,
}

impl Collector {
    /// Reads the URL, and sees that somebody listens there.
    ///
    /// # Errors
    /// A sentence why nothing can be sent there.
    pub fn new(text: &str) -> Result<Collector, String> {
        let url = Url::parse(text)?;
        if url.tls {
            return Err(format!("--metrics {text}: collectors are written to over http:// alone"));
        }
        let address = requests::resolve(&url.host, url.port)?;
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| format!("--metrics {text}: {e}"))?;
        Ok(Collector { url, address })
    }

    fn post(&self, body: &[u8]) -> Result<(), String> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE).map_err(|e| e.to_string())?;
        let limits = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: tidegate-bench/{}\r\nContent-Type: application/x-protobuf\r\n\
             Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.url.path,
            self.url.host,
            self.url.port,
            env!("CARGO_PKG_VERSION"),
            body.len()
        );
        let sent = limits.and_then(|()| stream.write_all(head.as_bytes())).and_then(|()| stream.write_all(body));
        sent.map_err(|e| e.to_string())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 512]);
        while !answer.windows(2).any(|w| w == b"\r\n") && answer.len() < ANSWER_MAX {
            match stream.read(&mut buffer).map_err(|e| e.to_string())? {
                0 => break,
                n => answer.extend_from_slice(&buffer[..n]),
            }
        }
        let line = String::from_utf8_lossy(answer.split(|b| *b == b'\r').next().unwrap_or_default()).into_owned();
        match line.split(' ').nth(1) {
            Some(status) if status.starts_with('2') => Ok(()),
            Some(status) => Err(format!("the collector answers {status}")),
            None => Err("the collector gives no answer".into()),
        }
    }
}

/// Sends to a collector from a thread of its own.
pub struct Sender {
    queue: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<(u64, Option<String>)>>,
    dropped: u64,
}

impl Sender {
    /// Starts.
    pub fn new(collector: Collector) -> Sender {
        let (queue, writes) = sync_channel::<Vec<u8>>(QUEUE_MAX);
        let thread = std::thread::spawn(move || {
            let (mut lost, mut why) = (0, None);
            for body in writes {
                if let Err(reason) = collector.post(&body) {
                    lost += 1;
                    why.get_or_insert(reason);
                }
            }
            (lost, why)
        });
        Sender { queue: Some(queue), thread: Some(thread), dropped: 0 }
    }

    /// Puts samples of a time (milliseconds since 1970) into the queue.
    pub fn send(&mut self, samples: &[Sample], at: i64) {
        let body = snappy(&write_request(samples, at));
        if let Some(queue) = &self.queue {
            match queue.try_send(body) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.dropped += 1,
            }
        }
    }

    /// Waits for what is in the queue; a sentence when the collector did not get everything.
    pub fn finish(mut self) -> Option<String> {
        drop(self.queue.take());
        let (lost, why) = self.thread.take()?.join().unwrap_or((0, Some("its thread panicked".into())));
        let missing = lost + self.dropped;
        let why = why.unwrap_or_else(|| "it was too slow".into());
        (missing > 0).then(|| format!("the collector of --metrics has not got {missing} of the intervals: {why}"))
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A field of protobuf with a length (wire type 2).
fn field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// `WriteRequest { repeated TimeSeries timeseries = 1 }`, `TimeSeries { repeated Label labels = 1; repeated Sample samples = 2 }`,
/// `Label { string name = 1; string value = 2 }`, `Sample { double value = 1; int64 timestamp = 2 }`. Labels are sorted.
fn write_request(samples: &[Sample], at: i64) -> Vec<u8> {
    let mut out = Vec::new();
    for sample in samples {
        let mut labels: Vec<&(String, String)> = sample.labels.iter().collect();
        labels.sort();
        let (mut series, mut part) = (Vec::new(), Vec::new());
        for (name, value) in labels {
            part.clear();
            field(1, name.as_bytes(), &mut part);
            field(2, value.as_bytes(), &mut part);
            field(1, &part, &mut series);
        }
        part.clear();
        part.push(1 << 3 | 1);
        part.extend_from_slice(&sample.value.to_le_bytes());
        part.push(2 << 3);
        varint(at as u64, &mut part);
        field(2, &part, &mut series);
        field(1, &series, &mut out);
    }
    out
}

/// Snappy's block format, with literals alone: the length, then pieces of up to 65,536 bytes as they are.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    varint(bytes.len() as u64, &mut out);
    for piece in bytes.chunks(1 << 16) {
        // 61 in the tag's upper bits: the length less one follows in two bytes.
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

    fn sample(name: &str, value: f64) -> Sample {
        let labels = [("run", "a"), ("__name__", name)].map(|(n, v)| (n.to_string(), v.to_string())).to_vec();
        Sample { labels, value }
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
        for (status, words) in [("204 No Content", None), ("500 Oops", Some("answers 500"))] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap());
            let server = std::thread::spawn(move || {
                let mut heads = Vec::new();
                // The first connection only sees whether somebody listens.
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
            let mut sender = Sender::new(Collector::new(&url).unwrap());
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
        assert!(Collector::new("https://127.0.0.1:1/").is_err() && Collector::new("http://127.0.0.1:1/").is_err());
    }
}
