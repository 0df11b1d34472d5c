//! A store in a folder that all nodes have: one machine with several processes, or a network file system with locks.
//!
//! ```text
//! FOLDER/lock                 taken by each operation (flock)
//! FOLDER/values/SPACE/HEX     a value: its end in milliseconds since 1970, or 0, a space, the bytes
//! FOLDER/maps/SPACE           records in the order of their changes, the newest of a key counts
//! ```
//!
//! Subscribers look at the lengths of the maps' files each [`LOOK_PAUSE`].

use crate::record::MapRecord;
use crate::store::{PermitGrant, PermitRequest, Store, StoreFailure, StoreFuture, Subscription, grant_permits};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pause between two looks of a subscriber.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Hexadecimal digits of a path's component: file systems take 255 bytes.
const COMPONENT_DIGITS: usize = 200;
/// In bytes: its file's path has to fit into the system's 4,096.
const KEY_BYTES_MAX: usize = 1_500;
/// A map's file is written anew when it is larger than this, and than [`GARBAGE_FACTOR`] times its records.
const FILE_BYTES_MIN: u64 = 64 * 1024;
const GARBAGE_FACTOR: u64 = 4;
/// In bytes. A longer one is no record: the file is not ours, or damaged.
const RECORD_BYTES_MAX: usize = 64 << 20;

/// See the module.
#[derive(Clone)]
pub struct FolderStore {
    folder: PathBuf,
}

fn failure(path: &Path, error: &io::Error) -> StoreFailure {
    StoreFailure::Unreachable(format!("{}: {error}", path.display()))
}

fn millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The lock of the folder, until it is dropped.
struct FolderLock {
    _file: File,
}

impl FolderStore {
    pub fn new(folder: PathBuf) -> FolderStore {
        FolderStore { folder }
    }

    /// Runs an operation with the lock, on a thread that may block.
    fn locked<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&FolderStore) -> Result<T, StoreFailure> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let store = self.clone();
        let run = move || {
            let _lock = store.lock()?;
            operation(&store)
        };
        Box::pin(async move {
            match tokio::task::spawn_blocking(run).await {
                Ok(result) => result,
                Err(error) => Err(StoreFailure::Unreachable(error.to_string())),
            }
        })
    }

    fn lock(&self) -> Result<FolderLock, StoreFailure> {
        fs::create_dir_all(&self.folder).map_err(|error| failure(&self.folder, &error))?;
        let path = self.folder.join("lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = open.map_err(|error| failure(&path, &error))?;
        file.lock().map_err(|error| failure(&path, &error))?;
        Ok(FolderLock { _file: file })
    }

    fn value_path(&self, space: &str, key: &[u8]) -> Result<PathBuf, StoreFailure> {
        if key.len() > KEY_BYTES_MAX {
            return Err(StoreFailure::Refused(format!("a key of more than {KEY_BYTES_MAX} bytes")));
        }
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut path = self.folder.join("values").join(space);
        let mut rest = digits.as_str();
        while let Some((component, behind)) = rest.split_at_checked(COMPONENT_DIGITS) {
            // No file has this name: a longer key's folder is not a shorter key's file.
            path.push(format!("{component}-"));
            rest = behind;
        }
        path.push(format!("{rest}_"));
        Ok(path)
    }

    fn read_value(&self, space: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreFailure> {
        let path = self.value_path(space, key)?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure(&path, &error)),
        };
        let Some(at) = bytes.iter().position(|byte| *byte == b' ') else { return Ok(None) };
        let end = bytes.get(..at).and_then(|end| std::str::from_utf8(end).ok()).and_then(|end| end.parse::<u64>().ok());
        match end {
            Some(end) if end == 0 || end > millis() => Ok(bytes.get(at + 1..).map(<[u8]>::to_vec)),
            _ => Ok(None),
        }
    }

    fn write_value(
        &self,
        space: &str,
        key: &[u8],
        value: &[u8],
        lifetime: Option<Duration>,
    ) -> Result<(), StoreFailure> {
        let end = lifetime.map_or(0, |lifetime| millis().saturating_add(lifetime.as_millis() as u64));
        let mut bytes = format!("{end} ").into_bytes();
        bytes.extend_from_slice(value);
        replace_file(&self.value_path(space, key)?, &bytes)
    }

    fn map_path(&self, space: &str) -> PathBuf {
        self.folder.join("maps").join(space)
    }
}

/// Replaces a file, or makes it: a reader finds the old or the new bytes.
fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), StoreFailure> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(|error| failure(folder, &error))?;
    let temporary = path.with_extension("tmp");
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|error| failure(path, &error))
}

fn append_record(bytes: &mut Vec<u8>, record: &MapRecord) {
    let message = record.to_message();
    bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&message);
}

/// Reads whole records from the beginning of bytes. Returns them with the number of bytes that they take: a writer may
/// have been killed within a record.
fn read_records(bytes: &[u8]) -> (Vec<MapRecord>, usize) {
    let (mut records, mut rest) = (Vec::new(), bytes);
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((message, behind)) = behind.split_at_checked(length).filter(|_| length <= RECORD_BYTES_MAX) else {
            break;
        };
        let Some(record) = MapRecord::from_message(message) else { break };
        records.push(record);
        rest = behind;
    }
    let taken = bytes.len() - rest.len();
    (records, taken)
}

fn read_map(path: &Path) -> Result<(BTreeMap<Vec<u8>, MapRecord>, usize, usize), StoreFailure> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(failure(path, &error)),
    };
    let (records, taken) = read_records(&bytes);
    let mut map = BTreeMap::new();
    for record in records {
        map.insert(record.key.clone(), record);
    }
    Ok((map, taken, bytes.len()))
}

fn write_map(path: &Path, map: &BTreeMap<Vec<u8>, MapRecord>) -> Result<(), StoreFailure> {
    let mut bytes = Vec::new();
    map.values().for_each(|record| append_record(&mut bytes, record));
    replace_file(path, &bytes)
}

/// A subscriber's place in a map's file.
#[derive(Default)]
struct MapPlace {
    inode: u64,
    read: u64,
}

impl MapPlace {
    /// Returns the records behind the place.
    fn advance(&mut self, path: &Path) -> io::Result<Vec<MapRecord>> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let facts = file.metadata()?;
        if facts.ino() != self.inode || facts.len() < self.read {
            *self = MapPlace { inode: facts.ino(), read: 0 };
        }
        if facts.len() == self.read {
            return Ok(Vec::new());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (records, taken) = read_records(&bytes);
        self.read += taken as u64;
        Ok(records)
    }
}

impl Store for FolderStore {
    fn get<'a>(&'a self, space: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        let (space, key) = (space.to_owned(), key.to_vec());
        self.locked(move |store| store.read_value(&space, &key))
    }

    fn put<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, ()> {
        let (space, key, value) = (space.to_owned(), key.to_vec(), value.to_vec());
        self.locked(move |store| store.write_value(&space, &key, &value, lifetime))
    }

    fn compare_and_set<'a>(
        &'a self,
        space: &'a str,
        key: &'a [u8],
        expected: Option<&'a [u8]>,
        value: &'a [u8],
        lifetime: Option<Duration>,
    ) -> StoreFuture<'a, bool> {
        let (space, key, value) = (space.to_owned(), key.to_vec(), value.to_vec());
        let expected = expected.map(<[u8]>::to_vec);
        self.locked(move |store| {
            if store.read_value(&space, &key)? != expected {
                return Ok(false);
            }
            store.write_value(&space, &key, &value, lifetime)?;
            Ok(true)
        })
    }

    fn merge_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, usize> {
        let (path, records) = (self.map_path(space), records.to_vec());
        self.locked(move |_| {
            let (mut map, taken, length) = read_map(&path)?;
            let (mut bytes, mut written) = (Vec::new(), 0);
            for record in records {
                if map.get(&record.key).is_some_and(|present| present.version >= record.version) {
                    continue;
                }
                append_record(&mut bytes, &record);
                map.insert(record.key.clone(), record);
                written += 1;
            }
            if written == 0 {
                return Ok(0);
            }
            let live: u64 = map.values().map(|record| (record.key.len() + 64) as u64).sum();
            let is_garbage = length as u64 > FILE_BYTES_MIN && length as u64 > GARBAGE_FACTOR * live;
            if taken != length || is_garbage || length == 0 {
                // Also behind a writer that was killed within a record.
                write_map(&path, &map)?;
                return Ok(written);
            }
            let append = || -> io::Result<()> {
                let mut file = OpenOptions::new().append(true).open(&path)?;
                file.write_all(&bytes)?;
                file.sync_data()
            };
            append().map_err(|error| failure(&path, &error))?;
            Ok(written)
        })
    }

    fn records<'a>(&'a self, space: &'a str) -> StoreFuture<'a, Vec<MapRecord>> {
        let path = self.map_path(space);
        self.locked(move |_| Ok(read_map(&path)?.0.into_values().collect()))
    }

    fn forget_records<'a>(&'a self, space: &'a str, records: &'a [MapRecord]) -> StoreFuture<'a, ()> {
        let (path, records) = (self.map_path(space), records.to_vec());
        self.locked(move |_| {
            let (mut map, ..) = read_map(&path)?;
            let before = map.len();
            for record in &records {
                if map.get(&record.key) == Some(record) {
                    map.remove(&record.key);
                }
            }
            if map.len() == before { Ok(()) } else { write_map(&path, &map) }
        })
    }

    fn subscribe<'a>(&'a self, spaces: &'a [String]) -> StoreFuture<'a, Subscription> {
        let paths: Vec<(String, PathBuf)> = spaces.iter().map(|space| (space.clone(), self.map_path(space))).collect();
        self.locked(move |_| {
            let mut places = Vec::new();
            for (space, path) in paths {
                let mut place = MapPlace::default();
                place.advance(&path).map_err(|error| failure(&path, &error))?;
                places.push((space, path, place));
            }
            let start = (places, Vec::<(String, MapRecord)>::new(), false);
            let stream = futures::stream::unfold(start, |(mut places, mut pending, has_ended)| async move {
                loop {
                    if let Some(change) = pending.pop() {
                        return Some((Ok(change), (places, pending, has_ended)));
                    }
                    if has_ended {
                        return None;
                    }
                    tokio::time::sleep(LOOK_PAUSE).await;
                    for (space, path, place) in &mut places {
                        match place.advance(path) {
                            Ok(records) => pending.extend(records.into_iter().map(|record| (space.clone(), record))),
                            Err(error) => return Some((Err(failure(path, &error)), (Vec::new(), Vec::new(), true))),
                        }
                    }
                    pending.reverse();
                }
            });
            Ok(stream.boxed())
        })
    }

    fn hold_lease<'a>(&'a self, name: &'a str, holder: &'a str, lifetime: Duration) -> StoreFuture<'a, bool> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.locked(move |store| {
            let present = store.read_value("leases", name.as_bytes())?;
            if present.is_some_and(|present| present != holder.as_bytes()) {
                return Ok(false);
            }
            store.write_value("leases", name.as_bytes(), holder.as_bytes(), Some(lifetime))?;
            Ok(true)
        })
    }

    fn release_lease<'a>(&'a self, name: &'a str, holder: &'a str) -> StoreFuture<'a, ()> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.locked(move |store| {
            if store.read_value("leases", name.as_bytes())?.is_some_and(|present| present == holder.as_bytes()) {
                let path = store.value_path("leases", name.as_bytes())?;
                fs::remove_file(&path).map_err(|error| failure(&path, &error))?;
            }
            Ok(())
        })
    }

    fn take_permits<'a>(&'a self, space: &'a str, requests: &'a [PermitRequest]) -> StoreFuture<'a, Vec<PermitGrant>> {
        let (space, requests) = (format!("{space}.permits"), requests.to_vec());
        self.locked(move |store| {
            let now = millis() * 1000;
            let mut grants = Vec::with_capacity(requests.len());
            for request in &requests {
                let until = store.read_value(&space, &request.key)?;
                let until = until.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok()).unwrap_or(0);
                let (grant, until) =
                    grant_permits(until, now, request.permit_micros(), request.burst_micros(), request.wanted);
                let lifetime = Duration::from_micros(until.saturating_sub(now)) + Duration::from_secs(1);
                store.write_value(&space, &request.key, until.to_string().as_bytes(), Some(lifetime))?;
                grants.push(grant);
            }
            Ok(grants)
        })
    }
}
