//! The key process: holds private keys, makes signatures, and knows nothing else. Each socket of a worker thread has a thread here, so that
//! a long signature (RSA of 4096 bits) delays no other.

use crate::confinement::KeyConfinement;
use crate::keys::wire::{self, ADMIT, FILE_MAX, FORGET, KeyResponse, LOAD, PACKET_MAX, Request};
use crate::say;
use observe::os_error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tls::isolation::{self, ExtractedKey, KeyId};

/// Sockets of worker threads at once.
const CHANNELS_MAX: usize = 1024;
/// Keys that were loaded at handshakes. The oldest is dropped, and loaded again when it is needed.
const DYNAMIC_MAX: usize = 4096;
const STACK_BYTES: usize = 256 << 10;
/// How often a process without a master looks for the end of the last worker.
const ORPHAN_PAUSE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

const EPERM: i32 = 1;
const EFBIG: i32 = 27;
const EINVAL: i32 = 22;

type KeyHandle = Arc<dyn isolation::SigningKey>;

#[derive(Default)]
struct KeyTable {
    fixed: HashMap<KeyId, KeyHandle>,
    /// Keys of files that variables name, with the number of their loading.
    dynamic: HashMap<KeyId, (KeyHandle, u64)>,
    loads: u64,
}

struct Keys {
    table: RwLock<KeyTable>,
    channels: AtomicUsize,
    /// The master has given all keys: until then, requests of workers wait at the door.
    admits: AtomicBool,
    /// Variables name keys: workers may ask for files, within the rules of the process.
    opens: bool,
}

/// Runs in the child of the fork until neither master nor worker is left; the exit code.
pub fn run_keeper([control, door]: [OwnedFd; 2], confinement: &Option<KeyConfinement>, closed: io::Result<()>) -> i32 {
    net::process::set_name(c"tidegate keys");
    net::title::set(&format!("{}: key process", crate::messages::program_name()));
    if let Err(e) = closed {
        say!(Alert, "close_range() failed in the key process {}", os_error(&e));
    }
    isolation::prepare_library();
    // The allocator looks at the machine's memory with the first thread.
    let _ = std::thread::spawn(|| drop(Vec::<u8>::with_capacity(PACKET_MAX))).join();
    if let Some(confinement) = confinement
        && !confinement.enter()
    {
        return crate::messages::FATAL;
    }
    let opens = confinement.as_ref().is_some_and(|confinement| confinement.opens);
    let keys = Arc::new(Keys {
        table: RwLock::default(),
        channels: AtomicUsize::new(0),
        admits: AtomicBool::new(false),
        opens,
    });
    let (mut master, mut workers) = (true, true);
    loop {
        let mut waits = Vec::with_capacity(2);
        if master {
            waits.push(PollFd::new(&control, PollFlags::IN));
        }
        let admits = !master || keys.admits.load(Ordering::Relaxed);
        if workers && admits {
            waits.push(PollFd::new(&door, PollFlags::IN));
        }
        let timeout = (!master).then_some(&ORPHAN_PAUSE);
        let _ = poll(&mut waits, timeout);
        drop(waits);
        master &= keys.orders(&control);
        if admits {
            workers &= keys.visitors(&door);
        }
        if !master && !workers && keys.channels.load(Ordering::Acquire) == 0 {
            return 0;
        }
    }
}

impl Keys {
    /// Carries out orders of the master. False at its end.
    fn orders(&self, control: &OwnedFd) -> bool {
        let mut packet = vec![0; 4096];
        loop {
            let (length, files) = match wire::receive_packet(control, &mut packet, false) {
                Ok((0, _)) => return false,
                Ok(received) => received,
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            };
            match packet.first() {
                Some(&LOAD) => {
                    let loaded = self.load(files);
                    let (answer, files) = match loaded {
                        Ok((ids, files)) => (KeyResponse::Done(ids.concat()), files),
                        Err(e) => (KeyResponse::error(&e), Vec::new()),
                    };
                    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
                    // A master that has ended asks no more.
                    let _ = wire::send_packet(control, &answer.bytes(), &files);
                }
                Some(&FORGET) => {
                    let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
                    for id in packet.get(1..length).unwrap_or_default().chunks_exact(size_of::<KeyId>()) {
                        table.fixed.remove(id);
                    }
                }
                Some(&ADMIT) => self.admits.store(true, Ordering::Relaxed),
                _ => {}
            }
        }
    }

    /// Takes over a file. Returns ids of its keys, and memory files: the text without keys, and the keys for a later process.
    fn load(&self, files: Vec<OwnedFd>) -> io::Result<(Vec<KeyId>, Vec<OwnedFd>)> {
        let mut files = files.into_iter().map(File::from);
        let text = whole(files.next().ok_or(io::Error::from_raw_os_error(EINVAL))?)?;
        let passwords = match files.next() {
            Some(file) => tls_directives::split_passwords(&whole(file)?).ok_or(io::Error::from_raw_os_error(EINVAL))?,
            None => Vec::new(),
        };
        let found = isolation::extract_keys(&text, &passwords, None);
        let mut out = vec![memory("tidegate-certificates", &found.text)?];
        if !found.keys.is_empty() {
            let pem: String = found.keys.iter().map(|key| key.pem.as_str()).collect();
            out.push(memory("tidegate-keys", pem.as_bytes())?);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let ids = found.keys.iter().map(|key| key.id).collect();
        table.fixed.extend(found.keys.into_iter().map(|key| (key.id, key.key)));
        Ok((ids, out))
    }

    /// Starts a thread for each socket that arrived. False when no worker is left.
    fn visitors(self: &Arc<Self>, door: &OwnedFd) -> bool {
        loop {
            let mut packet = [0; 8];
            let sockets = match wire::receive_packet(door, &mut packet, false) {
                Ok((0, _)) => return false,
                Ok((_, sockets)) => sockets,
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            };
            for socket in sockets {
                if self.channels.load(Ordering::Relaxed) >= CHANNELS_MAX {
                    continue;
                }
                let keys = Arc::clone(self);
                keys.channels.fetch_add(1, Ordering::AcqRel);
                let body = move || {
                    // A panic ends the channel, whose worker opens another.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| keys.serve(&socket)));
                    drop(socket);
                    keys.channels.fetch_sub(1, Ordering::AcqRel);
                };
                let builder = std::thread::Builder::new().name("tidegate keys".into()).stack_size(STACK_BYTES);
                if builder.spawn(body).is_err() {
                    self.channels.fetch_sub(1, Ordering::AcqRel);
                }
            }
        }
    }

    /// Answers one worker thread, a request at a time, until its end.
    fn serve(&self, socket: &OwnedFd) {
        let mut packet = vec![0; PACKET_MAX];
        loop {
            let length = match wire::receive_packet(socket, &mut packet, true) {
                Ok((0, _)) | Err(_) => return,
                Ok((length, _)) => length,
            };
            let answer = match Request::read(packet.get(..length).unwrap_or_default()) {
                Some(Request::Sign { id, scheme, origin, message }) => self.sign(&id, scheme, origin, message),
                Some(Request::Open { path }) => match self.open(path) {
                    Ok(text) if text.len() < PACKET_MAX => KeyResponse::Done(text),
                    Ok(_) => KeyResponse::Errno(EFBIG),
                    Err(e) => KeyResponse::error(&e),
                },
                None => return,
            };
            if wire::send_packet(socket, &answer.bytes(), &[]).is_err() {
                return;
            }
        }
    }

    fn sign(&self, id: &KeyId, scheme: u16, origin: &str, message: &[u8]) -> KeyResponse {
        let mut key = self.key(id);
        if key.is_none() && !origin.is_empty() {
            if let Err(e) = self.open(origin) {
                return KeyResponse::error(&e);
            }
            key = self.key(id);
        }
        let Some(key) = key else { return KeyResponse::Words("it does not have this key".into()) };
        match isolation::sign_with(&*key, scheme, message) {
            Ok(signature) => KeyResponse::Done(signature),
            Err(why) => KeyResponse::Words(why),
        }
    }

    fn key(&self, id: &KeyId) -> Option<KeyHandle> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.fixed.get(id).or_else(|| table.dynamic.get(id).map(|(key, _)| key)).cloned()
    }

    /// Keys stay here.
    fn open(&self, path: &str) -> io::Result<Vec<u8>> {
        if !self.opens {
            return Err(io::Error::from_raw_os_error(EPERM));
        }
        // Without a wait for the writer of a pipe.
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::from_raw_os_error(EINVAL));
        }
        let found = isolation::extract_keys(&whole(file)?, &[], Some(path));
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        for ExtractedKey { id, key, .. } in found.keys {
            table.loads += 1;
            let number = table.loads;
            while table.dynamic.len() >= DYNAMIC_MAX && !table.dynamic.contains_key(&id) {
                let oldest = table.dynamic.iter().min_by_key(|(_, (_, number))| *number).map(|(id, _)| *id);
                let Some(oldest) = oldest else { break };
                table.dynamic.remove(&oldest);
            }
            table.dynamic.insert(id, (key, number));
        }
        Ok(isolation::certificates_and_keys(&found.text))
    }
}

fn whole(mut file: File) -> io::Result<Vec<u8>> {
    // Memory files were read before, by an earlier process.
    let _ = file.rewind();
    let mut text = Vec::new();
    file.take(FILE_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(io::Error::from_raw_os_error(EFBIG));
    }
    Ok(text)
}

fn memory(name: &str, text: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(text)?;
    Ok(file.into())
}
