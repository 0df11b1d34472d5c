//! SSI (nginx: `ngx_http_ssi_filter_module`): commands in pages, as `<!--#include virtual="/part" -->`.
//! `parse.rs` finds commands, `state.rs` keeps variables and blocks, `command.rs` runs commands, `page.rs` is the
//! resulting body; includes run concurrently and appear in order.

mod command;
mod page;
mod parse;
mod state;

use conf_schema::value::{Flag, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::media_types::MediaTypes;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, Request, ResponseBody};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct SsiConf from SsiInput {
        /// Processes Server Side Includes in responses.
        ssi: Flag = "off",
        /// Omits error messages from the page; errors are still logged.
        ssi_silent_errors: Flag = "off",
        /// Accepted for compatibility: buffers are not recycled. (nginx does not document it.)
        ssi_ignore_recycled_buffers: Flag = "off",
        /// Minimum part of a file, between commands, that is sent with sendfile.
        ssi_min_file_chunk: Size = "1k",
        /// Maximum length of a command's parameter value.
        ssi_value_length: Size = "256",
        /// Preserves `Last-Modified` and a weak `ETag`.
        ssi_last_modified: Flag = "off",
        /// Media types to process, besides text/html.
        ssi_types: SsiTypes = "text/html",
    }
}

#[derive(Clone)]
pub struct SsiTypes(MediaTypes);

impl ValueKind for SsiTypes {
    const SYNTAX: &'static str = "media-type ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(SsiTypes)
    }
    fn append(&mut self, later: Self) {
        self.0.join(&later.0);
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        self.0.warn_of_duplicates(&later.0, cx, d);
        Ok(())
    }
}

struct TimeForm(String);

const TIME_FORM: &str = "%A, %d-%b-%Y %H:%M:%S %Z";

static VARIABLES: &[Builtin] = &[
    Builtin::one("date_local", |r, out| date(r, true, out), "Local time in the form that `config timefmt` sets."),
    Builtin::one("date_gmt", |r, out| date(r, false, out), "GMT in the form that `config timefmt` sets."),
];

fn date(r: &mut Request, local: bool, out: &mut Vec<u8>) -> bool {
    let form = r.ext::<TimeForm>().map_or(TIME_FORM, |form| &form.0);
    let now = base::clock::unix_seconds();
    let text = if form == "%s" { Some(now.to_string()) } else { observe::clock::format_time(now, local, form) };
    text.is_some_and(|text| {
        out.extend_from_slice(text.as_bytes());
        true
    })
}

pub struct Ssi;

impl Feature for Ssi {
    fn table(&self) -> FeatureTable {
        SsiConf::table("ssi", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<SsiConf>() else { return Ok(()) };
        if conf.ssi {
            block.location.filters.push((FilterOrder::Ssi, Arc::new(SsiRun(conf))));
        }
        Ok(())
    }
}

struct SsiRun(Arc<SsiConf>);

impl Filter for SsiRun {
    fn name(&self) -> &'static str {
        "ssi"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        if r.out.content_length() == Some(0) || !self.0.ssi_types.0.has(r.out.content_type()) {
            return Ok(body);
        }
        if !r.is_subrequest() {
            r.out.body_changes();
            if !self.0.ssi_last_modified {
                r.out.drop_validators();
            }
        }
        if r.is_head() {
            return Ok(body);
        }
        Ok(ResponseBody::Source(Box::new(page::SsiPage::new(self.0.clone(), r, body))))
    }
}
