//! A store in Redis or Valkey.
//!
//! | Key | Contents |
//! |---|---|
//! | `PREFIX:value:SPACE:KEY` | a value |
//! | `PREFIX:map:SPACE` | a hash: the text of a record for each key |
//! | `PREFIX:lease:NAME` | the holder |
//! | `PREFIX:permits:SPACE:KEY` | microseconds since 1970 until which a bucket is paid for |
//!
//! Changes of a map are published in the channel `PREFIX:map:SPACE`. The rights that a user needs:
//! `~PREFIX:* &PREFIX:* +get +set +del +hget +hset +hdel +hscan +publish +subscribe +evalsha +eval +script|load +time +ping`,
//! and `+cluster` for a cluster.

use crate::record::MapRecord;
use crate::redis_connection::{RedisConnection, RedisSettings, failure_of};
use crate::redis_scripts::{COMPARE_AND_SET, FORGET, HOLD, MERGE, PERMITS, RELEASE};
use crate::store::{PermitGrant, PermitRequest, Store, StoreFailure, StoreFuture, Subscription};
use ::redis::aio::PubSub;
use ::redis::{FromRedisValue, Script, ScriptInvocation};
use futures::StreamExt;
use futures::future::join_all;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Records of one command.
const BATCH: usize = 256;

/// A connected store. It is not connected again: after [`StoreFailure::Unreachable`], make another one.
pub struct RedisStore {
    connection: RedisConnection,
    /// Until it is used by [`Store::subscribe`].
    subscriber: Mutex<Option<PubSub>>,
    prefix: String,
    patience: Duration,
    scripts: Scripts,
}

struct Scripts {
    merge: Script,
    forget: Script,
    compare_and_set: Script,
    hold: Script,
    release: Script,
    permits: Script,
}

impl RedisStore {
    /// Connects.
    ///
    /// # Errors
    /// If no server answers in time, or one refuses the login.
    pub async fn connect(settings: &RedisSettings, prefix: &str) -> Result<RedisStore, StoreFailure> {
        let (connection, subscriber) = settings.connect().await?;
        let scripts = Scripts {
            merge: Script::new(MERGE),
            forget: Script::new(FORGET),
            compare_and_set: Script::new(COMPARE_AND_SET),
            hold: Script::new(HOLD),
            release: Script::new(RELEASE),
            permits: Script::new(PERMITS),
        };
        let subscriber = Mutex::new(Some(subscriber));
        Ok(RedisStore { connection, subscriber, prefix: prefix.to_owned(), patience: settings.patience, scripts })
    }

    fn value_key(&self, space: &str, key: &[u8]) -> Vec<u8> {
        [format!("{}:value:{space}:", self.prefix).as_bytes(), key].concat()
    }

    fn map_key(&self, space: &str) -> String {
        format!("{}:map:{space}", self.prefix)
    }

    async fn within<T>(&self, answer: impl Future<Output = ::redis::RedisResult<T>>) -> Result<T, StoreFailure> {
        match tokio::time::timeout(self.patience, answer).await {
            Ok(result) => result.map_err(|error| failure_of(&error)),
            Err(_) => Err(StoreFailure::Unreachable(format!("no answer in {} ms", self.patience.as_millis()))),
        }
    }

    async fn run<T: FromRedisValue>(&self, script: &ScriptInvocation<'_>) -> Result<T, StoreFailure> {
        let mut connection = self.connection.clone();
        self.within(script.invoke_async(&mut connection)).await
    }
}

fn millis(lifetime: Option<Duration>) -> u64 {
    lifetime.map_or(0, |lifetime| (lifetime.as_millis() as u64).max(1))
}

impl Store for RedisStore {
    fn get<'a>(&'a self, space: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let mut command = ::redis::cmd("GET");
            command.arg(self.value_key(space, key));
            self.within(command.query_async(&mut connection)).await
        })
    }

    fn put<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            let mut command = ::redis::cmd("SET");
            command.arg(self.value_key(space, key)).arg(value);
            if lifetime.is_some() {
                command.arg("PX").arg(millis(lifetime));
            }
            self.within(command.query_async(&mut connection)).await
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        expected: Option<&'a [u8]>,
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut script = self.scripts.compare_and_set.prepare_invoke();
            script.key(self.value_key(space, key)).arg(u8::from(expected.is_some()));
            script.arg(expected.unwrap_or_default()).arg(value).arg(millis(lifetime));
            self.run(&script).await
        })
    }

    fn merge_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, usize> {
        Box::pin(async move {
            let mut written = 0;
            for records in records.chunks(BATCH) {
                let mut script = self.scripts.merge.prepare_invoke();
                script.key(self.map_key(space)).arg(self.map_key(space));
                for record in records {
                    script.arg(&record.key).arg(record.to_text()).arg(record.to_message());
                }
                written += self.run::<usize>(&script).await?;
            }
            Ok(written)
        })
    }

    fn records<'a>(&'a self, space: &'a str) -> StoreFuture<'a, Vec<MapRecord>> {
        Box::pin(async move {
            let (mut connection, mut cursor, mut records) = (self.connection.clone(), 0_u64, Vec::new());
            loop {
                let mut command = ::redis::cmd("HSCAN");
                command.arg(self.map_key(space)).arg(cursor).arg("COUNT").arg(4 * BATCH);
                let (next, fields): (u64, Vec<(Vec<u8>, Vec<u8>)>) =
                    self.within(command.query_async(&mut connection)).await?;
                records.extend(fields.iter().filter_map(|(key, text)| MapRecord::from_text(key, text)));
                if next == 0 {
                    return Ok(records);
                }
                cursor = next;
            }
        })
    }

    fn forget_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            for records in records.chunks(BATCH) {
                let mut script = self.scripts.forget.prepare_invoke();
                script.key(self.map_key(space));
                for record in records {
                    script.arg(&record.key).arg(record.to_text());
                }
                self.run::<i64>(&script).await?;
            }
            Ok(())
        })
    }

    fn subscribe<'a>(&'a self, spaces: &'a [String]) -> StoreFuture<'a, Subscription> {
        Box::pin(async move {
            let subscriber = self.subscriber.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(mut subscriber) = subscriber else {
                return Err(StoreFailure::Unreachable("the connection has a subscription already".into()));
            };
            for space in spaces {
                self.within(subscriber.subscribe(self.map_key(space))).await?;
            }
            let channels = format!("{}:map:", self.prefix);
            let changes = subscriber.into_on_message().filter_map(move |message| {
                let space = message.get_channel_name().strip_prefix(&channels).map(str::to_owned);
                let record = MapRecord::from_message(message.get_payload_bytes());
                std::future::ready(space.zip(record).map(Ok))
            });
            let end = StoreFailure::Unreachable("the connection of the subscription has ended".into());
            Ok(changes.chain(futures::stream::once(std::future::ready(Err(end)))).boxed())
        })
    }

    fn hold_lease<'a>(&'a self, name: &'a str, holder: &'a str, lifetime: Duration) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let mut script = self.scripts.hold.prepare_invoke();
            script.key(format!("{}:lease:{name}", self.prefix)).arg(holder).arg(millis(Some(lifetime)));
            self.run(&script).await
        })
    }

    fn release_lease<'a>(&'a self, name: &'a str, holder: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mut script = self.scripts.release.prepare_invoke();
            script.key(format!("{}:lease:{name}", self.prefix)).arg(holder);
            self.run::<i64>(&script).await?;
            Ok(())
        })
    }

    fn take_permits<'a>(&'a self, space: &'a str, requests: &'a [PermitRequest]) -> StoreFuture<'a, Vec<PermitGrant>> {
        Box::pin(async move {
            let prefix = format!("{}:permits:{space}:", self.prefix);
            let one = |request: &PermitRequest| {
                let mut script = self.scripts.permits.prepare_invoke();
                script
                    .key([prefix.as_bytes(), &request.key].concat())
                    .arg(request.permit_micros())
                    .arg(request.burst_micros())
                    .arg(request.wanted);
                async move { self.run::<(u64, u64)>(&script).await }
            };
            // They share a connection, whose commands go out together.
            let answers = join_all(requests.iter().map(one)).await;
            answers
                .into_iter()
                .map(|answer| answer.map(|(granted, retry_after)| PermitGrant { granted, retry_after }))
                .collect()
        })
    }
}
