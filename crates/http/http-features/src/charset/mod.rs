//! charset (nginx: `ngx_http_charset_filter_module`): sets the charset of responses and recodes them by tables.

mod table;

use conf_schema::value::Flag;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::media_types::MediaTypes;
use http_engine::response::charset_of;
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, Filter, FilterOrder, HttpTemplate, Piece, Request, ResponseBody, Str,
};
use observe::Severity;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use table::{CharsetMaps, Recoder};

directives! {
    pub struct CharsetConf from CharsetInput {
        /// Adds this charset to the `Content-Type` of text responses, and recodes them if `source_charset` differs.
        charset: CharsetName = "off",
        /// Defines a table that recodes between two charsets, in both directions.
        charset_map: CharsetMap,
        /// Media types to which `charset` applies, besides text/html.
        charset_types: TextTypes = "text/html text/xml text/plain text/vnd.wap.wml application/javascript \
            application/rss+xml",
        /// Also recodes responses of upstream servers that name their own charset.
        override_charset: Flag = "off",
        /// Charset of the original responses.
        source_charset: CharsetName,
    }
}

#[derive(Clone, Debug)]
pub struct CharsetName(HttpTemplate);

/// Charsets that `charset` and `source_charset` name, anywhere in the configuration (nginx: `mcf->charsets`). An upstream
/// may request one of them.
#[derive(Clone, Default)]
struct CharsetNames(Vec<Box<[u8]>>);

impl CharsetNames {
    fn know(&self, name: &[u8]) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

impl ValueKind for CharsetName {
    const SYNTAX: &'static str = "charset | off";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = HttpTemplate::parse(cx, d)?;
        if let Some(literal) = name.as_literal().filter(|literal| !literal.is_empty() && *literal != b"off") {
            let names = cx.get::<CharsetNames>();
            if !names.know(literal) {
                names.0.push(literal.into());
            }
        }
        Ok(CharsetName(name))
    }
}

#[derive(Clone, Debug)]
pub struct TextTypes(MediaTypes);

impl ValueKind for TextTypes {
    const SYNTAX: &'static str = "mime-type ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(TextTypes)
    }
    fn append(&mut self, later: Self) {
        self.0.join(&later.0);
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        self.0.warn_of_duplicates(&later.0, cx, d);
        Ok(())
    }
}

#[derive(Clone)]
pub struct CharsetMap;

impl ValueKind for CharsetMap {
    const SYNTAX: &'static str = "charset1 charset2 { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut maps = cx.take::<CharsetMaps>();
        let added = maps.add(d);
        *cx.get::<CharsetMaps>() = maps;
        added.map(|()| CharsetMap)
    }
}

pub struct Charset;

impl Feature for Charset {
    fn table(&self) -> FeatureTable {
        CharsetConf::table("charset", ContextArea::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<CharsetConf>() else { return Ok(()) };
        let target = conf.charset.0.clone();
        let (maps, names) = (block.cx.get::<CharsetMaps>().clone(), block.cx.get::<CharsetNames>().clone());
        let source = conf.source_charset.as_ref().map(|name| name.0.clone());
        if target.as_literal() == Some(b"off") {
            // An upstream may request another charset, and subrequests are converted to that of the main response.
            if !maps.is_empty() || !names.0.is_empty() {
                let mark =
                    RecodeMark { target: None, source, types: MediaTypes::default(), replace: false, maps, names };
                block.location.filters.push((FilterOrder::Charset, Arc::new(mark)));
            }
            return Ok(());
        }
        if let (Some(to), Some(from)) = (target.as_literal(), source.as_ref().and_then(HttpTemplate::as_literal))
            && !to.eq_ignore_ascii_case(from)
            && maps.find(from, to).is_none()
        {
            return Err(Problem::says(no_map(from, to)));
        }
        block.location.charset = target.clone();
        let types = conf.charset_types.0.clone();
        let mark = RecodeMark { target: Some(target), source, types, replace: conf.override_charset, maps, names };
        block.location.filters.push((FilterOrder::Charset, Arc::new(mark)));
        Ok(())
    }
}

fn no_map(from: &[u8], to: &[u8]) -> String {
    let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(to));
    format!("no \"charset_map\" between the charsets \"{from}\" and \"{to}\"")
}

struct RecodeMark {
    /// `None`: only charsets requested by upstreams.
    target: Option<HttpTemplate>,
    source: Option<HttpTemplate>,
    types: MediaTypes,
    replace: bool,
    maps: CharsetMaps,
    names: CharsetNames,
}

impl RecodeMark {
    /// Charset that the response shall have; empty: as it is (nginx: `ngx_http_destination_charset`).
    fn target(&self, r: &mut Request) -> Vec<u8> {
        if let Some(main) = r.main_charset() {
            return main.to_vec();
        }
        let media = r.out.content_type();
        if media.is_empty() {
            return Vec::new();
        }
        let wanted = r.out.wanted_charset();
        if !wanted.is_empty() {
            let wanted = wanted.to_vec();
            if !self.maps.know(&wanted) && !self.names.know(&wanted) {
                let shown = String::from_utf8_lossy(&wanted).into_owned();
                r.log(Severity::Error, format_args!("unknown charset \"{shown}\" to override"));
                return Vec::new();
            }
            return wanted;
        }
        let Some(target) = &self.target else { return Vec::new() };
        let applies = if r.out.charset_name().is_empty() { self.types.has(media) } else { self.replace };
        if applies { target.eval(r) } else { Vec::new() }
    }
}

impl Filter for RecodeMark {
    fn name(&self) -> &'static str {
        "charset"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let to = self.target(r);
        if to.is_empty() {
            return Ok(body);
        }
        let from = match (r.out.charset_name(), &self.source) {
            (own @ [_, ..], _) => own.to_vec(),
            ([], Some(source)) => source.eval(r),
            ([], None) => Vec::new(),
        };
        if from.is_empty() || from.eq_ignore_ascii_case(&to) {
            set(r, to);
            return Ok(body);
        }
        if !r.out.content_encoding().is_empty() {
            return Ok(body);
        }
        let Some(recoder) = self.maps.find(&from, &to) else {
            let words = no_map(&from, &to);
            r.log(Severity::Error, format_args!("{words}"));
            return Ok(body);
        };
        set(r, to);
        if recoder.changes_length() {
            r.out.set_content_length(None);
            r.out.allow_ranges(false);
        }
        if matches!(body, ResponseBody::Empty) {
            return Ok(body);
        }
        let body = body.into_cached();
        // A byte-for-byte recoded body stays in memory and supports ranges.
        if !recoder.changes_length()
            && let Some(all) = in_memory(&body)
        {
            return Ok(ResponseBody::Bytes(recoder.recode(&all, &mut Vec::new()).into()));
        }
        Ok(ResponseBody::Source(Box::new(RecodedBody { body, ready: VecDeque::new(), recoder, cut: Vec::new() })))
    }
}

fn in_memory(body: &ResponseBody) -> Option<bytes::Bytes> {
    match body {
        ResponseBody::Bytes(bytes) => Some(bytes.clone()),
        ResponseBody::Pieces(pieces) => {
            let mut all = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Bytes(bytes) => all.extend_from_slice(bytes),
                    Piece::File(_) | Piece::Flush => return None,
                }
            }
            Some(all.into())
        }
        ResponseBody::Empty | ResponseBody::File(_) | ResponseBody::Source(_) => None,
    }
}

/// Sets the charset, except of redirects: old browsers applied it to the next page.
fn set(r: &mut Request, charset: Vec<u8>) {
    let media = r.out.content_type();
    if charset_of(media).is_some()
        && let Some(end) = media.iter().position(|c| *c == b';')
        && let Some(bare) = media.get(..end)
    {
        r.out.set_content_type(bare.to_vec());
    }
    r.out.set_charset(if matches!(r.out.status(), 301 | 302) { Str::default() } else { charset.into() });
}

/// Bytes that are recoded at a time.
const READ_BYTES: u64 = 16 * 1024;

struct RecodedBody {
    body: ResponseBody,
    ready: VecDeque<Piece>,
    recoder: Arc<Recoder>,
    /// Incomplete character at a piece's end.
    cut: Vec<u8>,
}

impl BodySource for RecodedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            let piece = match self.ready.pop_front() {
                Some(piece) => piece,
                None => match ready!(self.body.poll_piece(cx, r)) {
                    Some(Ok(piece)) => piece,
                    None if !self.cut.is_empty() => {
                        self.cut.clear();
                        return Poll::Ready(Some(Ok(Piece::Bytes(bytes::Bytes::from_static(b"?")))));
                    }
                    other => return Poll::Ready(other),
                },
            };
            let text = match piece {
                Piece::Flush => return Poll::Ready(Some(Ok(Piece::Flush))),
                Piece::Bytes(mut text) => {
                    let now = text.split_to(text.len().min(READ_BYTES as usize));
                    if !text.is_empty() {
                        self.ready.push_front(Piece::Bytes(text));
                    }
                    now
                }
                Piece::File(mut part) => {
                    let Ok(text) = part.read_most(READ_BYTES) else { return Poll::Ready(Some(Err(BodyError))) };
                    if part.length > 0 {
                        self.ready.push_front(Piece::File(part));
                    }
                    text
                }
            };
            let recoded = self.recoder.recode(&text, &mut self.cut);
            if !recoded.is_empty() {
                return Poll::Ready(Some(Ok(Piece::Bytes(recoded.into()))));
            }
        }
    }
    /// A piece may be the beginning of a character.
    fn needs_window(&self) -> bool {
        false
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.body.poll_ahead(cx, r);
    }
}
