//! The admission webhook: answers `AdmissionReview` over HTTPS.
//!
//! The API server asks before it stores an object. The answer is what would become of the object: [`review`].

mod certificate;
mod review;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub use certificate::CertificateFiles;
pub use review::Reviewer;

/// Connections at once at most; the others wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;
/// Time for a handshake and the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Time for the answer to a request, shorter than that of the manifests (`timeoutSeconds`).
const ANSWER_TIME: Duration = Duration::from_secs(8);
/// Bytes of a request at most: an object has at most 1.5 MB, and is sent twice when it changes.
const REQUEST_MAX: usize = 8 << 20;

/// Answers reviews until the task is dropped.
pub async fn serve_webhook(listener: TcpListener, certificates: CertificateFiles, reviewer: Arc<Reviewer>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let certificates = Arc::new(certificates);
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (certificates, reviewer) = (certificates.clone(), reviewer.clone());
        tokio::spawn(async move {
            serve_connection(stream, &certificates, reviewer).await;
            drop(slot);
        });
    }
}

async fn serve_connection(stream: TcpStream, certificates: &CertificateFiles, reviewer: Arc<Reviewer>) {
    let Some(config) = certificates.current() else { return };
    let Ok(Ok(stream)) = timeout(HEAD_TIME, TlsAcceptor::from(config).accept(stream)).await else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let reviewer = reviewer.clone();
        async move { Ok::<_, Infallible>(answer(request, &reviewer).await) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).keep_alive(false);
    // The API server asks again, or goes on as the failure policy says.
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, reviewer: &Arc<Reviewer>) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        return response(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only POST of an AdmissionReview\n".into());
    }
    let body = timeout(ANSWER_TIME, Limited::new(request.into_body(), REQUEST_MAX).collect()).await;
    let Ok(Ok(body)) = body else {
        return response(StatusCode::BAD_REQUEST, "text/plain", "the request is too long or too slow\n".into());
    };
    match reviewer.answer(&body.to_bytes(), ANSWER_TIME).await {
        Ok(value) => response(StatusCode::OK, "application/json", value.to_string()),
        Err(words) => response(StatusCode::BAD_REQUEST, "text/plain", format!("{words}\n")),
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
