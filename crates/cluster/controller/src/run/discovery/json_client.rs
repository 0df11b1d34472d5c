//! HTTP client of engines and of Consul: JSON over a Unix socket, TCP or TLS. One connection for each request.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client_tls::{ClientTls, TlsFiles};

/// Bytes of an answer at most.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Time for a connection and the head of an answer.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Field with the token of Consul.
const TOKEN_FIELD: &str = "x-consul-token";

/// Address of an engine or of Consul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp { host: String, port: u16, is_tls: bool },
}

impl Address {
    /// Parses `unix:PATH`, `tcp://HOST:PORT`, `http://HOST:PORT`, `https://HOST:PORT`, or `HOST:PORT`. TCP is used with TLS
    /// if an authority is given.
    ///
    /// # Errors
    /// If the text is none of these.
    pub fn parse(text: &str, has_authority: bool) -> Result<Address, String> {
        let usage = || "expected unix:PATH, tcp://HOST:PORT, http://HOST:PORT or https://HOST:PORT".to_owned();
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            return if path.is_absolute() { Ok(Address::Unix(path)) } else { Err(usage()) };
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("tcp", text));
        let is_tls = match scheme {
            "tcp" => has_authority,
            "http" => false,
            "https" => true,
            "ssh" => return Err("addresses over SSH are not supported: forward the socket (ssh -L)".into()),
            _ => return Err(usage()),
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':').ok_or_else(usage)?;
        let host = host.trim_matches(['[', ']']);
        match port.parse() {
            Ok(port) if !host.is_empty() && !host.contains('/') => {
                Ok(Address::Tcp { host: host.to_owned(), port, is_tls })
            }
            _ => Err(usage()),
        }
    }
}

/// Answer to a request.
#[derive(Debug)]
pub struct JsonAnswer {
    pub status: StatusCode,
    pub fields: HeaderMap,
    pub value: Value,
}

/// Client of one address.
#[derive(Clone)]
pub struct JsonClient {
    address: Address,
    tls: Option<ClientTls>,
    token_file: Option<PathBuf>,
    token: Option<String>,
}

/// Connection that ends with the value.
pub struct JsonConnection {
    sender: SendRequest<Empty<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for JsonConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl JsonClient {
    /// Returns a client. Files are read for addresses with TLS only.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn new(address: Address, files: &TlsFiles) -> Result<JsonClient, String> {
        let tls = match &address {
            Address::Tcp { is_tls: true, .. } => Some(ClientTls::new(files)?),
            _ => None,
        };
        Ok(JsonClient { address, tls, token_file: None, token: None })
    }

    /// Sends a token with each request: that of the file, which is read again each time, or the given one.
    #[must_use]
    pub fn with_token(self, token_file: Option<PathBuf>, token: Option<String>) -> JsonClient {
        JsonClient { token_file, token, ..self }
    }

    /// Sends a GET request and reads its answer. `time` is the limit of the whole.
    ///
    /// # Errors
    /// If there is no complete answer in time, or its body is no JSON although its status is a success.
    pub async fn get(&self, path: &str, time: Duration) -> Result<JsonAnswer, String> {
        let exchange = async {
            let (response, _connection) = self.send(path).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| chain(&*error))?;
            let bytes = body.to_bytes();
            let value = match serde_json::from_slice(&bytes) {
                Ok(value) => value,
                Err(error) if head.status.is_success() => return Err(format!("no JSON: {error}")),
                Err(_) => Value::String(String::from_utf8_lossy(&bytes).trim().chars().take(200).collect()),
            };
            Ok(JsonAnswer { status: head.status, fields: head.headers, value })
        };
        let result = timeout(time, exchange).await.unwrap_or_else(|_| Err("no answer in time".into()));
        result.map_err(|error| format!("{path}: {error}"))
    }

    /// Sends a GET request whose answer is a stream without an end.
    ///
    /// # Errors
    /// If the head does not come in time, or its status is no success.
    pub async fn stream(&self, path: &str) -> Result<(Incoming, JsonConnection), String> {
        let sent = timeout(HEAD_TIME_MAX, self.send(path)).await;
        let (response, connection) = sent.unwrap_or_else(|_| Err("no answer in time".into()))?;
        match response.status() {
            status if status.is_success() => Ok((response.into_body(), connection)),
            status => Err(format!("{path}: status {status}")),
        }
    }

    async fn send(&self, path: &str) -> Result<(Response<Incoming>, JsonConnection), String> {
        let mut connection = self.connect().await?;
        let host = match &self.address {
            Address::Unix(_) => "localhost".to_owned(),
            Address::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port, .. } => format!("{host}:{port}"),
        };
        let mut request = Request::builder().method(Method::GET).uri(path).header(header::HOST, host);
        if let Some(token) = self.read_token()? {
            request = request.header(TOKEN_FIELD, token);
        }
        let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
        let response = connection.sender.send_request(request).await.map_err(|error| match &self.tls {
            // A server of TLS 1.3 refuses a client behind the client's handshake.
            Some(tls) => tls.reason(&error),
            None => chain(&error),
        })?;
        Ok((response, connection))
    }

    fn read_token(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(text.lines().next().map(|line| line.trim().to_owned()).filter(|token| !token.is_empty()))
    }

    async fn connect(&self) -> Result<JsonConnection, String> {
        match &self.address {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
                handshake(stream).await
            }
            Address::Tcp { host, port, .. } => {
                let failed = |error: std::io::Error| format!("{host}:{port}: {error}");
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
                let Some(tls) = &self.tls else { return handshake(stream).await };
                let stream = tls.connect(host, stream).await.map_err(|reason| format!("{host}:{port}: {reason}"))?;
                handshake(stream).await
            }
        }
    }
}

async fn handshake<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(stream: S) -> Result<JsonConnection, String> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
    let task = tokio::spawn(async move {
        // The request has the error.
        let _ = connection.await;
    });
    Ok(JsonConnection { sender, task })
}

/// Writes an error with its causes.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut words = error.to_string();
    for cause in std::iter::successors(error.source(), |cause| cause.source()) {
        let cause = cause.to_string();
        // Some errors write their cause themselves.
        if !words.ends_with(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn addresses_have_the_forms_of_docker_and_consul() {
        let tcp = |host: &str, port, is_tls| Ok(Address::Tcp { host: host.into(), port, is_tls });
        let unix = Ok(Address::Unix("/run/docker.sock".into()));
        assert_eq!(Address::parse("unix:/run/docker.sock", false), unix);
        assert_eq!(Address::parse("unix:///run/docker.sock", false), unix);
        assert_eq!(Address::parse("tcp://10.0.0.1:2375", false), tcp("10.0.0.1", 2375, false));
        assert_eq!(Address::parse("tcp://10.0.0.1:2376", true), tcp("10.0.0.1", 2376, true));
        assert_eq!(Address::parse("127.0.0.1:8500", false), tcp("127.0.0.1", 8500, false));
        assert_eq!(Address::parse("https://consul.test:8501/", false), tcp("consul.test", 8501, true));
        assert_eq!(Address::parse("http://[::1]:8500", false), tcp("::1", 8500, false));
        for text in ["", "unix:docker.sock", "ssh://host", "ftp://a:1", "tcp://host", "http://a:b", "http://a:1/x"] {
            assert!(Address::parse(text, false).is_err(), "{text}");
        }
    }
}
