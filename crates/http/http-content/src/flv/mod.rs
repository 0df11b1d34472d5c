//! flv (nginx: `ngx_http_flv_module`): Flash video from a byte offset in the query.

use bytes::Bytes;
use conf_schema::value::{Latest, Own};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::core_table::Marker;
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Feature, FilePart, Flow, Handler, HandlerOrder, Piece, Request, ResponseBody, Str};
use http_upstream::opening;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct FlvConf from FlvInput {
        /// Serves FLV files from the byte offset in the argument `start`, after a generated header.
        flv: Own<Latest<Marker>>,
    }
}

/// `FLV`, version 1, audio and video, header length; size of the previous tag, 0.
const HEAD: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

pub struct FlvFeature;

impl Feature for FlvFeature {
    fn table(&self) -> FeatureTable {
        FlvConf::table("flv", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if conf.downcast_ref::<FlvConf>().is_some_and(|conf| conf.flv.is_some()) {
            block.handle(HandlerOrder::Video, Arc::new(Flv));
        }
        Ok(())
    }
}

struct Flv;

impl Handler for Flv {
    fn run(&self, r: &mut Request) -> Flow {
        let found = match opening::wanted_file(r) {
            Ok((_, found)) => found,
            Err(flow) => return flow,
        };
        let start = start(find_arg(r.target.args(), b"start"), found.size);
        let head = if start > 0 { Some(Piece::Bytes(Bytes::from_static(HEAD))) } else { None };
        let left = found.size - start;
        let length = left + head.as_ref().map_or(0, Piece::len);
        let rest = match (&found.content, &found.file) {
            (Some(content), _) => Piece::Bytes(content.slice(start as usize..)),
            (None, Some(file)) => Piece::File(FilePart { file: file.clone(), start, length: left }),
            (None, None) => Piece::Bytes(Bytes::new()),
        };
        r.describe_file(length, found.modified, || Str::Shared(found.etag_of_length(length)));
        Flow::Content(ResponseBody::Pieces(head.into_iter().chain([rest]).collect()))
    }
}

/// Start offset; 0 if invalid or beyond the file.
fn start(argument: Option<&[u8]>, size: u64) -> u64 {
    let number = argument.filter(|text| !text.is_empty() && text.iter().all(u8::is_ascii_digit));
    let start = number.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
    if start < size { start } else { 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn starts_are_parsed() {
        for (argument, start) in [
            (None, 0),
            (Some("5"), 5),
            (Some("10"), 0),
            (Some(""), 0),
            (Some("-1"), 0),
            (Some("99999999999999999999"), 0),
        ] {
            assert_eq!(super::start(argument.map(str::as_bytes), 10), start, "{argument:?}");
        }
    }
}
