//! gzip (nginx: `ngx_http_gzip_filter_module`).

use crate::shared::compress::{self, Coding};
use crate::shared::gzip_ok::{Disabled, GzipOk, MinVersion, Proxied};
use crate::shared::media_types::MediaTypes;
use conf_schema::value::{Between, Buffers, Flag, Size};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Body, Feature, Filter, FilterOrder, Request};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the gzip module is told in a block.
    pub struct GzipConf from GzipInput {
        /// Whether responses are compressed.
        /// Differs: a response that is in memory is compressed at once, and goes out with its length instead of in chunks.
        gzip: Flag = "off",
        /// How hard the compressor tries.
        gzip_comp_level: Between<1, 9> = "1",
        /// Shorter responses are left alone.
        gzip_min_length: Size = "20",
        /// Media types that are compressed besides text/html.
        gzip_types: GzipTypes = "text/html",
        /// nginx's memory limits of the compressor: the values are checked and have no effect.
        gzip_window: Size = "32k",
        /// As `gzip_window`.
        gzip_hash: Size = "64k",
        /// Whether output is flushed as soon as there is some.
        gzip_no_buffer: Flag = "off",
        /// How much input is gathered before compression begins; ours begins at once.
        postpone_gzipping: Size = "0",
        /// Number and size of buffers; the compressor grows its own, the value is checked and has no effect.
        gzip_buffers: Buffers = "32 4k",
        /// The least version of HTTP that a client must speak.
        gzip_http_version: MinVersion = "1.1",
        /// What is compressed for clients behind a proxy (they send Via).
        gzip_proxied: Proxied = "off",
        /// Clients whose User-Agent matches get no compressed responses.
        gzip_disable: Disabled,
        /// Whether `Vary: Accept-Encoding` is added where compression is possible.
        gzip_vary: Flag = "off",
    }
}

/// `gzip_types`
#[derive(Clone)]
pub struct GzipTypes(MediaTypes);

impl Value for GzipTypes {
    const SYNTAX: &'static str = "media-type ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(GzipTypes)
    }
    fn append(&mut self, later: Self) {
        self.0.join(&later.0);
    }
}

static VARIABLES: &[Builtin] = &[Builtin::one(
    "gzip_ratio",
    |r, out| compress::ratio(r, out),
    "How many times as long the response was before it was compressed.",
)];

/// The feature.
pub struct Gzip;

impl Feature for Gzip {
    fn table(&self) -> Table {
        GzipConf::table("gzip", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<GzipConf>() else { return Ok(()) };
        // Others ask for it, too: what answers with compressed files, and what inflates.
        let ok = Arc::new(GzipOk {
            disable: conf.gzip_disable.clone(),
            version: conf.gzip_http_version,
            proxied: conf.gzip_proxied,
            vary: conf.gzip_vary,
        });
        if !ok.is_default() {
            block.location.extensions.push(ok.clone());
        }
        if conf.gzip {
            block.location.filters.push((FilterOrder::Compress, Arc::new(Compress { conf, ok })));
        }
        Ok(())
    }
}

struct Compress {
    conf: Arc<GzipConf>,
    ok: Arc<GzipOk>,
}

impl Filter for Compress {
    fn name(&self) -> &'static str {
        "gzip"
    }
    fn apply(&self, r: &mut Request, body: Body) -> Result<Body, u16> {
        let conf = &self.conf;
        if !compress::eligible(r, conf.gzip_min_length.0, &conf.gzip_types.0) {
            return Ok(body);
        }
        r.out.vary_encoding = conf.gzip_vary;
        if !self.ok.allows(r) {
            return Ok(body);
        }
        compress::apply(r, body, Coding::Gzip, conf.gzip_comp_level.0 as u32, 15)
    }
}
