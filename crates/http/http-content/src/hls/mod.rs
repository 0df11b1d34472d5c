//! hls (documented with nginx's commercial edition: `ngx_http_hls_module`): HTTP Live Streaming (RFC 8216) of MP4 and MOV files.
//! `movie.rs` reads the tracks, `timeline.rs` divides them, `fragment.rs` writes a fragment as a transport stream (`ts.rs`),
//! `body.rs` sends it as the client reads.

mod body;
mod fragment;
pub mod fuzzing;
mod movie;
#[cfg(test)]
mod tests;
mod timeline;
mod ts;

use crate::shared::film::boxes::Wrong;
use crate::shared::film::{Film, parse_milliseconds};
use crate::shared::pooled;
use body::FragmentBody;
use conf_schema::value::{Buffers, Flag, Latest, Msec, Own, Size};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use fragment::{HlsFragment, Range};
use http_engine::body_memory;
use http_engine::core_table::Marker;
use http_engine::path::{CanonicalPath, escape_uri};
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Piece, Request, ResponseBody};
use http_upstream::opening;
use movie::Movie;
use net::pool::ResultInterest;
use observe::Severity;
use std::any::Any;
use std::fmt::Write;
use std::sync::Arc;

directives! {
    pub struct HlsConf from HlsInput {
        /// Serves MP4 and MOV files with H.264, AAC and MP3 as HTTP Live Streaming: `FILE.m3u8` is a playlist, with the arguments
        /// `start`, `end`, `len` and `offset` (seconds), `FILE.ts` the fragment from `start` to `end`.
        hls: Own<Latest<Marker>>,
        /// Number and size of buffers: their product, 128 MB at most, limits the size of a fragment; larger ones get 500.
        hls_buffers: Buffers = "8 2m",
        /// Adds the arguments of a playlist's request to the URIs of its fragments.
        hls_forward_args: Flag = "off",
        /// Minimum length of fragments, which begin with key frames. Of a playlist's request, `len` takes precedence.
        hls_fragment: Msec = "5s",
        /// Initial buffer of nginx. The value is checked and has no effect.
        hls_mp4_buffer_size: Size = "512k",
        /// Maximum size of a file's metadata; larger metadata gets 500.
        hls_mp4_max_buffer_size: Size = "10m",
    }
}

/// Minimum length of fragments in milliseconds, which bounds the size of playlists.
const LENGTH_MIN: u64 = 1000;
/// Maximum size of a fragment, which is written twice, first for its length: `hls_buffers` of guides, as `100 100m`, allow any film as one fragment.
const FRAGMENT_BYTES_MAX: u64 = 128 * 1024 * 1024;

pub struct HlsFeature;

impl Feature for HlsFeature {
    fn table(&self) -> FeatureTable {
        HlsConf::table("hls", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<HlsConf>() else { return Ok(()) };
        if conf.hls.is_some() {
            let Buffers { count, size } = conf.hls_buffers;
            let handler = Hls {
                bytes_max: count.saturating_mul(size).min(FRAGMENT_BYTES_MAX),
                forward_args: conf.hls_forward_args,
                length: conf.hls_fragment.0.max(LENGTH_MIN),
                tables_max: conf.hls_mp4_max_buffer_size.0,
            };
            block.handle(HandlerOrder::Video, Arc::new(handler));
        }
        Ok(())
    }
}

struct Hls {
    bytes_max: u64,
    forward_args: bool,
    length: u64,
    tables_max: u64,
}

#[derive(Debug)]
enum HlsQuery {
    Playlist(Playlist),
    Fragment(Range),
}

/// Times in milliseconds.
#[derive(Debug)]
struct Playlist {
    start: u64,
    end: Option<u64>,
    length: u64,
    /// Of `EXT-X-START`, in seconds.
    offset: Option<String>,
    /// Prefix of fragments, and their further arguments.
    name: String,
    args: String,
}

impl Handler for Hls {
    fn run(&self, r: &mut Request) -> Flow {
        let path = r.target.path();
        let (file, is_playlist) = match (path.strip_suffix(b".m3u8"), path.strip_suffix(b".ts")) {
            (Some(file), _) => (file, true),
            (_, Some(file)) => (file, false),
            _ => return Flow::Declined,
        };
        let name = file.rsplit(|c| *c == b'/').next().unwrap_or_default();
        // Others are files of these types themselves.
        if !name.iter().skip(1).any(|c| *c == b'.') {
            return Flow::Declined;
        }
        let Ok(file_path) = CanonicalPath::made(file.to_vec()) else { return Flow::Status(404) };
        let asked = if is_playlist {
            HlsQuery::Playlist(self.playlist(name, r.target.args()))
        } else {
            self.range(r.target.args())
        };
        let own = r.target.swap_path(file_path);
        let found = opening::wanted_file(r);
        r.target.set_path(own);
        let (path, found) = match found {
            Ok(found) => found,
            Err(flow) => return flow,
        };
        let film = Arc::new(Film {
            name: String::from_utf8_lossy(&path).into_owned(),
            size: found.size,
            content: found.content.clone(),
            file: found.file.as_ref().map(|open| open.file.clone()),
        });
        let tables_max = self.tables_max;
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let mut memory = match body_memory::reserve_memory(&r, found.size.min(tables_max)).await {
                    Ok(memory) => memory,
                    Err(none) => return (r, Flow::Status(none.status())),
                };
                let job = move |wanted: &ResultInterest<'_>| answer(&film, tables_max, &asked, wanted);
                let flow = match pooled::run_long(&r, job).await {
                    Some(Ok(made)) => {
                        r.out.set_status(200);
                        r.out.set_last_modified(Some(found.modified));
                        r.out.allow_ranges(!is_playlist);
                        r.out.set_content_type(if is_playlist {
                            "application/vnd.apple.mpegurl"
                        } else {
                            "video/mp2t"
                        });
                        Flow::Content(match made {
                            HlsContent::Whole(bytes) => {
                                r.out.set_content_length(Some(bytes.len() as u64));
                                ResponseBody::Pieces([Piece::Bytes(memory.hold(bytes))].into_iter().collect())
                            }
                            HlsContent::Long(fragment, length) => {
                                r.out.set_content_length(Some(length));
                                r.out.set_single_range(true);
                                memory.resize(fragment.memory());
                                ResponseBody::Source(Box::new(FragmentBody::new(fragment, memory)))
                            }
                        })
                    }
                    Some(Err(words)) => {
                        r.log(Severity::Error, format_args!("{words}"));
                        Flow::Status(500)
                    }
                    None => Flow::Status(500),
                };
                (r, flow)
            })
        }))
    }
}

impl Hls {
    fn range(&self, args: &[u8]) -> HlsQuery {
        let time = |name: &[u8]| find_arg(args, name).and_then(parse_milliseconds);
        let (start, end) = (time(b"start").unwrap_or(0), time(b"end").unwrap_or(u64::MAX));
        HlsQuery::Fragment(Range { start, end, bytes_max: self.bytes_max })
    }

    fn playlist(&self, name: &[u8], args: &[u8]) -> Playlist {
        let time = |name: &[u8]| find_arg(args, name).and_then(parse_milliseconds);
        let mut escaped = Vec::new();
        escape_uri(name, &mut escaped);
        let mut further = String::new();
        if self.forward_args {
            let own =
                |pair: &&[u8]| [&b"start"[..], b"end", b"len", b"offset"].iter().all(|n| find_arg(pair, n).is_none());
            for pair in args.split(|c| *c == b'&').filter(|pair| !pair.is_empty()).filter(own) {
                further.push('&');
                further.push_str(&String::from_utf8_lossy(pair));
            }
        }
        let offset = find_arg(args, b"offset").and_then(|text| {
            let (sign, number) = text.strip_prefix(b"-").map_or(("", text), |number| ("-", number));
            parse_milliseconds(number).map(|ms| format!("{sign}{}", seconds(ms)))
        });
        Playlist {
            start: time(b"start").unwrap_or(0),
            end: time(b"end").filter(|end| *end > 0),
            length: time(b"len").map_or(self.length, |length| length.max(LENGTH_MIN)),
            offset,
            name: String::from_utf8_lossy(&escaped).into_owned(),
            args: further,
        }
    }
}

/// Content of a response.
enum HlsContent {
    Whole(Vec<u8>),
    /// A fragment that is written while it is sent, and its length.
    Long(Box<HlsFragment>, u64),
}

/// Returns the response's content. Fails with the file's fault, and if the client has left.
fn answer(
    film: &Arc<Film>,
    tables_max: u64,
    asked: &HlsQuery,
    wanted: &ResultInterest<'_>,
) -> Result<HlsContent, Wrong> {
    let movie = Movie::of(film, tables_max)?;
    let range = match asked {
        HlsQuery::Fragment(range) => *range,
        HlsQuery::Playlist(playlist) => {
            return write_playlist(film, &movie, playlist).map(|text| HlsContent::Whole(text.into_bytes()));
        }
    };
    let mut fragment = HlsFragment::new(film, &movie, range)?;
    let again = fragment.again();
    let first = fragment.write(body::PIECE_BYTES)?;
    let mut length = first.len() as u64;
    loop {
        let more = fragment.write(body::PIECE_BYTES)?;
        if more.is_empty() {
            break;
        }
        length += more.len() as u64;
        if !wanted.is_wanted() {
            return Err("the client has left".into());
        }
    }
    if length == first.len() as u64 {
        return Ok(HlsContent::Whole(first));
    }
    Ok(HlsContent::Long(Box::new(again), length))
}

fn write_playlist(film: &Film, movie: &Movie, playlist: &Playlist) -> Result<String, Wrong> {
    let Playlist { start, end, length, offset, name, args } = playlist;
    let borders = timeline::fragment_borders(movie, *start, *end, *length, &film.name)?;
    let parts = || borders.iter().zip(borders.iter().skip(1)).map(|(start, end)| (*start, *end));
    let longest = parts().map(|(start, end)| (end - start).div_ceil(1000)).max().unwrap_or(1);
    let mut out = format!("#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:{longest}\n#EXT-X-PLAYLIST-TYPE:VOD\n");
    if let Some(offset) = offset {
        let _ = writeln!(out, "#EXT-X-START:TIME-OFFSET={offset}");
    }
    for (start, end) in parts() {
        let (length, start, end) = (seconds(end - start), seconds(start), seconds(end));
        let _ = writeln!(out, "#EXTINF:{length},\n{name}.ts?start={start}&end={end}{args}");
    }
    out.push_str("#EXT-X-ENDLIST\n");
    Ok(out)
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
