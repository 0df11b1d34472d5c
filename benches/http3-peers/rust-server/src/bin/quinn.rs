//! Serves a directory with quinn and h3, as a peer for measurements. Uses one thread.

use bytes::Bytes;
use h3::quic::BidiStream;
use h3::server::{Connection, RequestStream};
use http::{Request, Response, StatusCode};
use quinn::crypto::rustls::QuicServerConfig;
use rust_server::{Arguments, Failure, file};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;

async fn answer<S: BidiStream<Bytes>>(
    request: Request<()>,
    mut stream: RequestStream<S, Bytes>,
    root: &Path,
) -> Result<(), Failure> {
    let found = file(root, request.uri().path());
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let body = found.unwrap_or_default();
    let head = Response::builder().status(status).header("content-length", body.len()).body(())?;
    stream.send_response(head).await?;
    if !body.is_empty() {
        stream.send_data(body.into()).await?;
    }
    Ok(stream.finish().await?)
}

async fn serve(incoming: quinn::Incoming, root: Arc<Path>) -> Result<(), Failure> {
    let mut connection = Connection::new(h3_quinn::Connection::new(incoming.await?)).await?;
    while let Some(resolver) = connection.accept().await? {
        let root = root.clone();
        tokio::spawn(async move {
            let (request, stream) = resolver.resolve_request().await?;
            answer(request, stream, &root).await
        });
    }
    Ok(())
}

async fn run() -> Result<(), Failure> {
    let Arguments { address, root, certificate, key } = Arguments::read()?;
    let certificates = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    let endpoint = quinn::Endpoint::server(config, address.parse()?)?;
    let root: Arc<Path> = Path::new(&root).into();
    while let Some(incoming) = endpoint.accept().await {
        // Errors end one client's connection.
        tokio::spawn(serve(incoming, root.clone()));
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run())
}
