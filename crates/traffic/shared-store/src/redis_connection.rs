//! Connections to Redis and Valkey: one server, the master that Sentinels name, a cluster.

use crate::address::RedisMode;
use crate::store::StoreFailure;
use ::redis::aio::{ConnectionLike, MultiplexedConnection, PubSub};
use ::redis::cluster::ClusterClientBuilder;
use ::redis::cluster_async::ClusterConnection;
use ::redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use ::redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisError, RedisFuture, TlsCertificates, TlsMode, Value,
};
use std::time::Duration;

/// Settings of connections to Redis.
#[derive(Clone)]
pub struct RedisSettings {
    pub mode: RedisMode,
    pub hosts: Vec<(String, u16)>,
    pub uses_tls: bool,
    pub user: Option<String>,
    pub password: Option<String>,
    pub database: u32,
    /// Authorities in PEM; without any, those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Certificate and key in PEM.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Time for a connection, and for an answer.
    pub patience: Duration,
}

/// A connection for commands. Clones share it.
#[derive(Clone)]
pub enum RedisConnection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Tells a failure to talk from an answer that is an error.
pub fn failure_of(error: &RedisError) -> StoreFailure {
    let words = error.to_string();
    if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() {
        StoreFailure::Unreachable(words)
    } else {
        StoreFailure::Refused(words)
    }
}

impl RedisSettings {
    fn certificates(&self) -> TlsCertificates {
        let client_tls =
            self.certificate.clone().map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        TlsCertificates { client_tls, root_cert: self.authorities.clone() }
    }

    fn login(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_db(i64::from(self.database)).set_skip_set_lib_name();
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password);
        }
        info
    }

    fn address(&self, host: &str, port: u16) -> ConnectionAddr {
        match self.uses_tls {
            false => ConnectionAddr::Tcp(host.to_owned(), port),
            true => ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None },
        }
    }

    fn info(&self, address: ConnectionAddr) -> Result<ConnectionInfo, RedisError> {
        Ok(address.into_connection_info()?.set_redis_settings(self.login()))
    }

    fn client(&self, address: ConnectionAddr) -> Result<Client, RedisError> {
        let info = self.info(address)?;
        if self.uses_tls { Client::build_with_tls(info, self.certificates()) } else { Client::open(info) }
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.patience))
            .set_response_timeout(Some(self.patience))
    }

    /// Connects for commands, and for subscriptions.
    ///
    /// # Errors
    /// If no server answers in time, or one refuses the login.
    pub async fn connect(&self) -> Result<(RedisConnection, PubSub), StoreFailure> {
        let slow = |_| StoreFailure::Unreachable(format!("no answer in {} ms", self.patience.as_millis()));
        // The library's time limits do not reach each step (Sentinels, subscriptions).
        let limit = self.patience * 3;
        tokio::time::timeout(limit, self.connect_slowly()).await.map_err(slow)?.map_err(|error| failure_of(&error))
    }

    async fn connect_slowly(&self) -> Result<(RedisConnection, PubSub), RedisError> {
        let client = match &self.mode {
            RedisMode::UnixSocket(path) => Client::open(self.info(ConnectionAddr::Unix(path.clone()))?)?,
            RedisMode::Server => {
                let (host, port) = self.hosts.first().cloned().unwrap_or_default();
                self.client(self.address(&host, port))?
            }
            RedisMode::Sentinel(master) => self.ask_sentinels(master).await?,
            RedisMode::Cluster => return self.connect_cluster().await,
        };
        let connection = client.get_multiplexed_async_connection_with_config(&self.config()).await?;
        let subscriber = client.get_async_pubsub().await?;
        Ok((RedisConnection::Server(connection), subscriber))
    }

    async fn ask_sentinels(&self, master: &str) -> Result<Client, RedisError> {
        let sentinels = self.hosts.iter().map(|(host, port)| self.address(host, *port));
        let mut builder = SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
            .set_client_to_redis_db(i64::from(self.database));
        if self.uses_tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(self.certificates())
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_certificates(self.certificates());
        }
        if let Some(user) = &self.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
        }
        builder.build()?.async_get_client().await
    }

    async fn connect_cluster(&self) -> Result<(RedisConnection, PubSub), RedisError> {
        let nodes: Vec<ConnectionInfo> =
            self.hosts.iter().map(|(host, port)| self.info(self.address(host, *port))).collect::<Result<_, _>>()?;
        let mut builder = ClusterClientBuilder::new(nodes)
            .connection_timeout(self.patience)
            .response_timeout(self.patience)
            .retries(2);
        if self.uses_tls {
            builder = builder.tls(TlsMode::Secure).certs(self.certificates());
        }
        let connection = builder.build()?.get_async_connection().await?;
        // All nodes tell each publication: the first one that answers is as good as each.
        let mut last = None;
        for (host, port) in &self.hosts {
            match self.client(self.address(host, *port))?.get_async_pubsub().await {
                Ok(subscriber) => return Ok((RedisConnection::Cluster(connection), subscriber)),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| RedisError::from((::redis::ErrorKind::InvalidClientConfig, "no host"))))
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            RedisConnection::Server(connection) => connection.req_packed_command(cmd),
            RedisConnection::Cluster(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            RedisConnection::Server(connection) => connection.req_packed_commands(cmd, offset, count),
            RedisConnection::Cluster(connection) => connection.req_packed_commands(cmd, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            RedisConnection::Server(connection) => connection.get_db(),
            RedisConnection::Cluster(connection) => connection.get_db(),
        }
    }
}
