//! An HTTP server of one test, over a Unix socket or TCP.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

pub type FakeBody = BoxBody<Bytes, Infallible>;

/// Returns the response to a request.
pub type Handler = Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<FakeBody>> + Send + Sync>;

/// Switch that ends all connections, and refuses others while it is down.
#[derive(Clone, Default)]
pub struct Outage {
    is_down: Arc<AtomicBool>,
    changed: Arc<Notify>,
}

impl Outage {
    pub fn begin(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub fn end(&self) {
        self.is_down.store(false, Ordering::SeqCst);
    }

    fn is_down(&self) -> bool {
        self.is_down.load(Ordering::SeqCst)
    }
}

pub fn text_body(text: String) -> FakeBody {
    Full::new(Bytes::from(text)).boxed()
}

/// Returns the path of a new socket, in a folder that ends with the guard.
pub fn socket_path() -> (PathBuf, TempFolder) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("tidegate-discovery-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    (folder.join("source.sock"), TempFolder(folder))
}

/// Folder that is removed with the value.
pub struct TempFolder(pub PathBuf);

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn serve_unix(path: &PathBuf, outage: Outage, handler: Handler) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, outage.clone(), handler.clone());
        }
    });
}

/// Returns the port.
pub async fn serve_tcp(outage: Outage, handler: Handler) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, outage.clone(), handler.clone());
        }
    });
    port
}

/// As [`serve_tcp`], over TLS.
pub async fn serve_tls(acceptor: TlsAcceptor, outage: Outage, handler: Handler) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, outage, handler) = (acceptor.clone(), outage.clone(), handler.clone());
            tokio::spawn(async move {
                match acceptor.accept(stream).into_fallible().await {
                    Ok(stream) => serve(stream, outage, handler),
                    // Unread bytes at the end would reset the connection, and the alert would be lost.
                    Err((_, mut stream)) => {
                        let _ = stream.shutdown().await;
                        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                    }
                }
            });
        }
    });
    port
}

fn serve(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, outage: Outage, handler: Handler) {
    tokio::spawn(async move {
        let ended = outage.changed.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if outage.is_down() {
            return;
        }
        let service = service_fn(move |request| {
            let handler = handler.clone();
            async move { Ok::<_, Infallible>(handler(request).await) }
        });
        tokio::select! {
            _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service) => {}
            () = ended => {}
        }
    });
}
