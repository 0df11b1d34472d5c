//! Logs of Pods over HTTPS, as the API server asks a kubelet for them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::jiff::Timestamp;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::pods::PodKey;
use crate::processes::PodLog;

/// Logs by namespace and name of the Pod.
#[derive(Clone, Default)]
pub struct PodLogs(Arc<Mutex<BTreeMap<PodKey, Arc<PodLog>>>>);

impl PodLogs {
    /// Adds the log of a Pod, or replaces that of an earlier process.
    pub fn insert(&self, key: PodKey, log: Arc<PodLog>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, log);
    }

    /// Removes the log of a Pod that is gone.
    pub fn remove(&self, key: &PodKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Returns the answer to `/containerLogs/NAMESPACE/POD/CONTAINER?sinceTime=TIME`.
    fn answer(&self, path: &str, query: &str) -> Option<String> {
        let mut parts = path.strip_prefix("/containerLogs/")?.split('/');
        let key = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()?;
        let since = query.split('&').find_map(|pair| pair.strip_prefix("sinceTime="));
        let since = since.and_then(|time| time.replace("%3A", ":").replace("%2B", "+").parse::<Timestamp>().ok());
        Some(log.text_since(since))
    }
}

/// Answers requests with a certificate that it signs itself, until the process ends.
pub async fn serve_logs(address: SocketAddr, logs: PodLogs) -> Result<(), String> {
    let identity = rcgen::generate_simple_self_signed([address.ip().to_string()]).map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::Pkcs8(identity.signing_key.serialize_der().into());
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![identity.cert.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.map_err(|error| error.to_string())?));
    let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let (acceptor, logs) = (acceptor.clone(), logs.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(socket).await else { return };
            let service = service_fn(move |request| respond(request, logs.clone()));
            // The API server shows a broken connection to its client.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(request: Request<Incoming>, logs: PodLogs) -> Result<Response<Full<Bytes>>, Infallible> {
    let uri = request.uri();
    let (status, text) = match logs.answer(uri.path(), uri.query().unwrap_or_default()) {
        Some(text) => (StatusCode::OK, text),
        None => (StatusCode::NOT_FOUND, "no such container\n".into()),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_found_by_their_pod() {
        let logs = PodLogs::default();
        let key: PodKey = ("n".into(), "a".into());
        logs.insert(key.clone(), Arc::default());
        assert_eq!(logs.answer("/containerLogs/n/a/c", "sinceTime=2026-01-01T00%3A00%3A00Z"), Some(String::new()));
        assert_eq!(logs.answer("/containerLogs/n/b/c", ""), None);
        assert_eq!(logs.answer("/exec/n/a/c", ""), None);
        logs.remove(&key);
        assert_eq!(logs.answer("/containerLogs/n/a/c", ""), None);
    }
}
