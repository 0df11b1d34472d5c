//! mp4 (nginx: `ngx_http_mp4_module`): sends a film from one time to another.
//! `shared::film` parses boxes (ISO/IEC 14496-12) and cuts a track's tables, `rebuild.rs` builds the new head, `rate.rs` limits the
//! rate; media data comes from the file.

pub mod fuzzing;
mod rate;
mod rebuild;
#[cfg(test)]
mod tests;

use crate::shared::film::{Film, parse_milliseconds};
use crate::shared::pooled;
use bytes::Bytes;
use conf_schema::value::{Flag, Latest, Msec, Own, Size};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::body_memory;
use http_engine::core_table::Marker;
use http_engine::files::FileEntry;
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Feature, FilePart, Flow, Handler, HandlerOrder, Piece, Request, ResponseBody, Str};
use http_upstream::opening;
use net::pool::ResultInterest;
use observe::Severity;
use rate::{Factor, LocationLimit, Rate};
use rebuild::{Cut, Rebuilt};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;

directives! {
    pub struct Mp4Conf from Mp4Input {
        /// Serves the part of an MP4 file between the arguments `start` and `end`, in seconds.
        /// Differs: tracks with samples of constant size are cut to the sample, and an end within the first chunk is
        /// exact.
        mp4: Own<Latest<Marker>>,
        /// Initial buffer of nginx. The value is checked and has no effect.
        mp4_buffer_size: Size = "512K",
        /// Maximum size of a file's metadata; larger metadata gets 500.
        mp4_max_buffer_size: Size = "10M",
        /// Starts at a key frame, and tells players to skip to the requested time.
        mp4_start_key_frame: Flag = "off",
        /// Limits the rate of a response to the average bit rate of its film, times a factor; `on`: 1.1. Takes
        /// precedence over `limit_rate`; a film without a duration has no limit.
        mp4_limit_rate: Factor = "off",
        /// Playing time that is sent before `mp4_limit_rate` applies.
        mp4_limit_rate_after: Msec = "60s",
    }
}

pub struct Mp4Feature;

impl Feature for Mp4Feature {
    fn table(&self) -> FeatureTable {
        Mp4Conf::table("mp4", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<Mp4Conf>() else { return Ok(()) };
        if conf.mp4.is_some() {
            let limit = LocationLimit { factor: conf.mp4_limit_rate, after: conf.mp4_limit_rate_after.0 };
            let handler = Mp4 { tables_max: conf.mp4_max_buffer_size.0, key_frame: conf.mp4_start_key_frame, limit };
            block.handle(HandlerOrder::Video, Arc::new(handler));
        }
        Ok(())
    }
}

struct Mp4 {
    tables_max: u64,
    key_frame: bool,
    limit: LocationLimit,
}

impl Handler for Mp4 {
    fn run(&self, r: &mut Request) -> Flow {
        let (path, found) = match opening::wanted_file(r) {
            Ok(found) => found,
            Err(flow) => return flow,
        };
        let times = times(r.target.args());
        if times.is_none() && !self.limit.is_set() {
            return answer(r, &found, None);
        }
        let (key_frame, tables_max) = (self.key_frame, self.tables_max);
        let cut = times.map(|(start, length)| Cut { start, length, key_frame, tables_max });
        let limit = self.limit;
        let film = Film {
            name: String::from_utf8_lossy(&path).into_owned(),
            size: found.size,
            content: found.content.clone(),
            file: found.file.as_ref().map(|open| open.file.clone()),
        };
        // A film's tables are most of what its new head needs.
        let memory = found.size.min(tables_max);
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let memory = match body_memory::reserve_memory(&r, memory).await {
                    Ok(memory) => memory,
                    Err(none) => return (r, Flow::Status(none.status())),
                };
                let work = move |_: &ResultInterest<'_>| {
                    // A faulty film has no limit; cutting it fails with the reason.
                    let rate = if limit.is_set() { limit.of(&film).ok().flatten() } else { None };
                    let rebuilt = cut.map_or(Ok(Rebuilt::AsItIs), |cut| rebuild::rebuild_film(&film, &cut))?;
                    Ok::<_, String>((rebuilt, rate))
                };
                let flow = match pooled::run_long(&r, work).await {
                    Some(Ok((rebuilt, rate))) => {
                        slow_down(&mut r, rate);
                        match rebuilt {
                            Rebuilt::AsItIs => answer(&mut r, &found, None),
                            Rebuilt::New { head, start, length } => {
                                answer(&mut r, &found, Some((memory.hold(head), start, length)))
                            }
                        }
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

/// Sets the rate of the response, unless `$limit_rate` was set.
fn slow_down(r: &mut Request, rate: Option<Rate>) {
    if let Some(rate) = rate
        && r.reply.limit_rate().is_none()
    {
        r.reply.set_limit_rate(Some(rate.bytes_per_second));
        r.reply.set_limit_rate_after(rate.after);
    }
}

fn answer(r: &mut Request, found: &Rc<FileEntry>, cut: Option<(Bytes, u64, u64)>) -> Flow {
    let part = |start: u64, length: u64| match (&found.content, &found.file) {
        (Some(content), _) => Piece::Bytes(content.slice(start as usize..(start + length) as usize)),
        (None, Some(file)) => Piece::File(FilePart { file: file.clone(), start, length }),
        (None, None) => Piece::Bytes(Bytes::new()),
    };
    let pieces = match cut {
        None => vec![part(0, found.size)],
        Some((head, start, length)) => vec![Piece::Bytes(head), part(start, length)],
    };
    // As in nginx, single ranges only.
    r.out.set_single_range(pieces.len() > 1);
    let length = pieces.iter().map(Piece::len).sum();
    r.describe_file(length, found.modified, || Str::Shared(found.etag_of_length(length)));
    Flow::Content(ResponseBody::Pieces(pieces.into()))
}

/// Start and length in milliseconds (0: to the end); `None`: the whole file.
fn times(args: &[u8]) -> Option<(u64, u64)> {
    let start = find_arg(args, b"start").and_then(parse_milliseconds);
    let end = find_arg(args, b"end").and_then(parse_milliseconds).filter(|end| *end > 0);
    match (start, end) {
        (None, None) => None,
        (start, end) => {
            let start = start.unwrap_or(0);
            Some((start, end.map_or(0, |end| end.saturating_sub(start))))
        }
    }
}
