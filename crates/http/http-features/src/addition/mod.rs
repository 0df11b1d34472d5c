//! add_before_body, add_after_body (nginx: `ngx_http_addition_filter_module`): subrequests around a body.

use conf_schema::value::Text;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::media_types::MediaTypes;
use http_engine::subrequest::{self, BodyStream};
use http_engine::{
    BlockPlan, BodyError, BodySource, Feature, Filter, FilterOrder, Piece, Request, ResponseBody, file_paths,
};
use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

directives! {
    pub struct AdditionConf from AdditionInput {
        /// Inserts the response of a subrequest to this URI before the body. An empty URI turns it off.
        add_before_body: Text,
        /// Appends the response of a subrequest to this URI to the body. An empty URI turns it off.
        add_after_body: Text,
        /// Media types to which text is added, besides text/html.
        addition_types: AdditionTypes = "text/html",
    }
}

#[derive(Clone)]
pub struct AdditionTypes(MediaTypes);

impl ValueKind for AdditionTypes {
    const SYNTAX: &'static str = "media-type ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(AdditionTypes)
    }
    fn append(&mut self, later: Self) {
        self.0.join(&later.0);
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        self.0.warn_of_duplicates(&later.0, cx, d);
        Ok(())
    }
}

pub struct Addition;

impl Feature for Addition {
    fn table(&self) -> FeatureTable {
        AdditionConf::table("addition", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<AdditionConf>() else { return Ok(()) };
        if uri(&conf.add_before_body).or(uri(&conf.add_after_body)).is_some() {
            block.location.filters.push((FilterOrder::Addition, Arc::new(Add(conf))));
        }
        Ok(())
    }
}

fn uri(said: &Option<Text>) -> Option<&[u8]> {
    said.as_ref().map(|text| text.0.as_slice()).filter(|uri| !uri.is_empty())
}

struct Add(Arc<AdditionConf>);

impl Filter for Add {
    fn name(&self) -> &'static str {
        "addition"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if r.out.status() != 200 || !self.0.addition_types.0.has(r.out.content_type()) {
            return Ok(body);
        }
        r.out.body_changes();
        if r.is_head() {
            return Ok(body);
        }
        Ok(ResponseBody::Source(Box::new(AddedBody { conf: self.0.clone(), at: At::Start, body })))
    }
}

struct AddedBody {
    conf: Arc<AdditionConf>,
    at: At,
    body: ResponseBody,
}

enum At {
    Start,
    Before(BodyStream),
    Body,
    After(BodyStream),
    End,
}

fn begin(r: &mut Request, said: &Option<Text>) -> Result<Option<BodyStream>, BodyError> {
    let Some(uri) = uri(said) else { return Ok(None) };
    let uri = file_paths::canonical_path(r, uri.to_vec()).map_err(|_| BodyError)?;
    let child = r.subrequest(uri, Vec::new()).map_err(|_| BodyError)?;
    Ok(Some(subrequest::start_stream(child)))
}

impl BodySource for AddedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            self.at = match &mut self.at {
                At::Start => match begin(r, &self.conf.add_before_body) {
                    Err(e) => return Poll::Ready(Some(Err(e))),
                    Ok(Some(stream)) => At::Before(stream),
                    Ok(None) => At::Body,
                },
                At::Before(stream) => match ready!(stream.poll_piece(cx)) {
                    None => At::Body,
                    piece => return Poll::Ready(piece),
                },
                At::Body => match ready!(self.body.poll_piece(cx, r)) {
                    None => match begin(r, &self.conf.add_after_body) {
                        Err(e) => return Poll::Ready(Some(Err(e))),
                        Ok(Some(stream)) => At::After(stream),
                        Ok(None) => At::End,
                    },
                    piece => return Poll::Ready(piece),
                },
                At::After(stream) => match ready!(stream.poll_piece(cx)) {
                    None => At::End,
                    piece => return Poll::Ready(piece),
                },
                At::End => return Poll::Ready(None),
            };
        }
    }
    fn needs_window(&self) -> bool {
        match &self.at {
            At::Before(stream) | At::After(stream) => stream.needs_window(),
            At::Body => self.body.needs_window(),
            At::Start | At::End => false,
        }
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        if let At::Before(stream) | At::After(stream) = &mut self.at {
            stream.poll_ahead(cx);
        }
        if !matches!(self.at, At::After(_) | At::End) {
            self.body.poll_ahead(cx, r);
        }
    }
}
