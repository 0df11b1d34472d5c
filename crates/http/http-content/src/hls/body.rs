//! The body of a fragment: the pool writes a piece when the client has room for it.

use super::fragment::HlsFragment;
use crate::shared::film::boxes::Wrong;
use bytes::Bytes;
use http_engine::body_memory::Reservation;
use http_engine::{BodyError, BodySource, LocalFuture, Piece, Request};
use observe::Severity;
use std::task::{Context, Poll, ready};

/// Bytes of a piece; a shorter fragment is written at once.
pub const PIECE_BYTES: usize = 128 * 1024;

/// A piece that the pool writes, with the rest of its fragment. `None`: the job panicked.
type FragmentWriter = LocalFuture<Option<(Box<HlsFragment>, Result<Vec<u8>, Wrong>)>>;

pub struct FragmentBody {
    /// `None` while the pool has it, and after the end.
    fragment: Option<Box<HlsFragment>>,
    writing: Option<FragmentWriter>,
    _memory: Reservation,
}

impl FragmentBody {
    pub fn new(fragment: Box<HlsFragment>, memory: Reservation) -> FragmentBody {
        FragmentBody { fragment: Some(fragment), writing: None, _memory: memory }
    }
}

impl BodySource for FragmentBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(mut fragment) = self.fragment.take() {
            let job = move || {
                let written = fragment.write(PIECE_BYTES);
                (fragment, written)
            };
            self.writing = Some(match net::pool::find_pool(net::pool::DEFAULT).map(|pool| pool.run(job)) {
                Some(Ok(written)) => Box::pin(async move { written.await.ok() }),
                Some(Err(full)) => {
                    let (name, waiting) = (net::pool::DEFAULT, full.waiting);
                    r.log(
                        Severity::Error,
                        format_args!("thread pool \"{name}\" queue overflow: {waiting} tasks waiting"),
                    );
                    return Poll::Ready(Some(Err(BodyError)));
                }
                None => Box::pin(std::future::ready(None)),
            });
        }
        let Some(writing) = &mut self.writing else { return Poll::Ready(None) };
        let done = ready!(writing.as_mut().poll(cx));
        self.writing = None;
        Poll::Ready(match done {
            Some((_, Ok(bytes))) if bytes.is_empty() => None,
            Some((fragment, Ok(bytes))) => {
                self.fragment = Some(fragment);
                Some(Ok(Piece::Bytes(Bytes::from(bytes))))
            }
            Some((_, Err(words))) => {
                r.log(Severity::Error, format_args!("{words}"));
                Some(Err(BodyError))
            }
            None => Some(Err(BodyError)),
        })
    }
    fn needs_window(&self) -> bool {
        self.fragment.is_some()
    }
}
