//! sub_filter (nginx: `ngx_http_sub_filter_module`): replaces texts in bodies.

mod search;

use crate::shared::joining::{JOINED_BYTES, JoinedPieces};
use bytes::Bytes;
use conf_schema::value::Flag;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::media_types::MediaTypes;
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, FilePart, Filter, FilterOrder, HttpTemplate, Piece, Request,
    ResponseBody,
};
use net::budget;
use search::Needles;
use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

directives! {
    pub struct SubConf from SubInput {
        /// Replaces a text in responses, regardless of case; both strings may contain variables.
        sub_filter: Pairs,
        /// Preserves `Last-Modified` and a weak `ETag`.
        sub_filter_last_modified: Flag = "off",
        /// Replaces only the first occurrence of each text.
        sub_filter_once: Flag = "on",
        /// Media types in which texts are replaced, besides text/html.
        sub_filter_types: SubTypes = "text/html",
    }
}

#[derive(Clone)]
pub struct SubTypes(MediaTypes);

impl ValueKind for SubTypes {
    const SYNTAX: &'static str = "media-type ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(SubTypes)
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
pub struct Pairs(Vec<ReplacePair>);

#[derive(Clone)]
struct ReplacePair {
    text: HttpTemplate,
    by: HttpTemplate,
}

/// As in nginx.
const PAIRS_MAX: usize = 255;
/// Comparisons before other connections may run: about a millisecond.
const COMPARISONS_MAX: usize = 64 * 1024;

impl ValueKind for Pairs {
    const SYNTAX: &'static str = "string replacement";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [text, by] = d.args.as_slice() else { return Err(Problem::invalid()) };
        if text.bytes.is_empty() {
            return Err(Problem::says("empty search pattern").at(0));
        }
        let text = HttpTemplate::compile(cx, d, &text.bytes).map_err(|p| p.at(0))?;
        let by = HttpTemplate::compile(cx, d, &by.bytes).map_err(|p| p.at(1))?;
        Ok(Pairs(vec![ReplacePair { text, by }]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

pub struct SubFilter;

impl Feature for SubFilter {
    fn table(&self) -> FeatureTable {
        SubConf::table("sub_filter", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<SubConf>() else { return Ok(()) };
        let Some(Pairs(pairs)) = &conf.sub_filter else { return Ok(()) };
        if pairs.len() > PAIRS_MAX {
            return Err(Problem::says(format!("number of search patterns exceeds {PAIRS_MAX}")));
        }
        let literals: Option<Vec<&[u8]>> = pairs.iter().map(|pair| pair.text.as_literal()).collect();
        let fixed = literals.map(|texts| Arc::new(Needles::new(texts.into_iter().map(<[u8]>::to_vec).collect())));
        let by: Arc<[HttpTemplate]> = pairs.iter().map(|pair| pair.by.clone()).collect();
        block.location.filters.push((FilterOrder::Sub, Arc::new(Replace { conf, fixed, by })));
        Ok(())
    }
}

struct Replace {
    conf: Arc<SubConf>,
    fixed: Option<Arc<Needles>>,
    by: Arc<[HttpTemplate]>,
}

impl Filter for Replace {
    fn name(&self) -> &'static str {
        "sub_filter"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if r.out.content_length() == Some(0) || !self.conf.sub_filter_types.0.has(r.out.content_type()) {
            return Ok(body);
        }
        let (needles, by) = match &self.fixed {
            Some(fixed) => (fixed.clone(), self.by.clone()),
            None => {
                let pairs = self.conf.sub_filter.as_ref().map(|p| p.0.as_slice()).unwrap_or_default();
                let texts = pairs.iter().map(|pair| (pair.text.eval(r), pair.by.clone()));
                let (texts, by): (Vec<_>, Vec<_>) = texts.filter(|(text, _)| !text.is_empty()).unzip();
                if texts.is_empty() {
                    return Ok(body);
                }
                (Arc::new(Needles::new(texts)), by.into())
            }
        };
        if !r.is_subrequest() {
            r.out.set_content_length(None);
            r.out.allow_ranges(false);
            if self.conf.sub_filter_last_modified {
                r.out.weaken_etag();
            } else {
                r.out.drop_validators();
            }
        }
        if r.is_head() {
            return Ok(body);
        }
        let replaced = (0..by.len()).map(|_| None).collect();
        Ok(ResponseBody::Source(Box::new(ReplacedBody {
            needles,
            by,
            once: self.conf.sub_filter_once,
            replaced,
            body,
            file: None,
            ready: JoinedPieces::default(),
            input: Bytes::new(),
            searched: 0,
            is_last: false,
            is_interrupted: false,
        })))
    }
}

struct ReplacedBody {
    needles: Arc<Needles>,
    by: Arc<[HttpTemplate]>,
    once: bool,
    /// Evaluated replacement of each found text.
    replaced: Vec<Option<Bytes>>,
    body: ResponseBody,
    file: Option<FilePart>,
    ready: JoinedPieces,
    /// Input of a search that was interrupted; otherwise its end, which may start a text.
    input: Bytes,
    /// Octets of `input` at which no text begins.
    searched: usize,
    /// Nothing follows `input`.
    is_last: bool,
    is_interrupted: bool,
}

impl ReplacedBody {
    /// Tells whether all one-time texts are replaced.
    fn over(&self) -> bool {
        self.once && self.replaced.iter().all(Option::is_some)
    }
    /// Searches `input`; interrupts itself after [`COMPARISONS_MAX`], and when there is a piece.
    fn search(&mut self, r: &mut Request) {
        self.search_input(r);
        self.ready.flush();
    }
    fn search_input(&mut self, r: &mut Request) {
        let mut work = COMPARISONS_MAX;
        self.is_interrupted = false;
        while !self.input.is_empty() && !self.over() {
            if self.ready.has_piece() {
                self.is_interrupted = true;
                return budget::charge_time();
            }
            let (once, replaced) = (self.once, &self.replaced);
            let wanted = |index: usize| !once || replaced.get(index).is_some_and(Option::is_none);
            let found = match self.needles.find(&self.input, self.searched, wanted, self.is_last, &mut work) {
                Ok(found) => found,
                Err(at) => {
                    self.searched = at;
                    self.is_interrupted = true;
                    return budget::charge_time();
                }
            };
            self.searched = 0;
            let before = self.input.split_to(found.start);
            self.ready.push(before);
            let Some(index) = found.index else { return budget::charge_time() };
            let _ = self.input.split_to(found.length);
            let by = match self.replaced.get_mut(index) {
                Some(Some(by)) => by.clone(),
                slot => {
                    let by = Bytes::from(self.by.get(index).map(|by| by.eval(r)).unwrap_or_default());
                    if let Some(slot) = slot {
                        *slot = Some(by.clone());
                    }
                    by
                }
            };
            self.ready.push(by);
        }
        let rest = std::mem::take(&mut self.input);
        self.ready.push(rest);
    }
    fn come(&mut self, r: &mut Request, bytes: Bytes) {
        let held = std::mem::take(&mut self.input);
        self.input = if held.is_empty() { bytes } else { [held, bytes].concat().into() };
        self.search(r);
    }
}

impl BodySource for ReplacedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            if let Some(piece) = self.ready.pop() {
                return Poll::Ready(Some(Ok(piece)));
            }
            if self.is_interrupted {
                ready!(budget::poll_proceed(cx));
                self.search(r);
                continue;
            }
            let over = self.over();
            if let Some(part) = &mut self.file {
                if over && part.length > 0 {
                    return Poll::Ready(self.file.take().map(|part| Ok(Piece::File(part))));
                }
                if part.length == 0 {
                    self.file = None;
                    continue;
                }
                let Ok(bytes) = part.read_most(JOINED_BYTES) else { return Poll::Ready(Some(Err(BodyError))) };
                self.come(r, bytes);
                continue;
            }
            match ready!(self.body.poll_piece(cx, r)) {
                Some(Ok(piece)) if self.over() => return Poll::Ready(Some(Ok(piece))),
                Some(Ok(Piece::Bytes(bytes))) => self.come(r, bytes),
                Some(Ok(Piece::File(part))) => self.file = Some(part),
                Some(other) => return Poll::Ready(Some(other)),
                None if self.input.is_empty() => return Poll::Ready(None),
                None => {
                    self.is_last = true;
                    self.search(r);
                }
            }
        }
    }
    /// Texts may be replaced by nothing.
    fn needs_window(&self) -> bool {
        false
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.body.poll_ahead(cx, r);
    }
}
