//! gzip (nginx: `ngx_http_gzip_filter_module`).

use crate::shared::compress::{self, Coding};
use crate::shared::gzip_ok::{GzipDisabled, GzipOk, MinVersion, Proxied};
use conf_schema::value::{Between, Buffers, Flag, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::media_types::MediaTypes;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, Request, ResponseBody};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct GzipConf from GzipInput {
        /// Compresses responses.
        /// Differs: a response in memory is compressed at once and sent with its length instead of in chunks.
        gzip: Flag = "off",
        /// Compression level, from 1 (fastest) to 9 (smallest).
        gzip_comp_level: Between<1, 9> = "1",
        /// Minimum length of a response to compress, by its `Content-Length`.
        gzip_min_length: Size = "20",
        /// Media types to compress, besides text/html.
        gzip_types: GzipTypes = "text/html",
        /// Window size of nginx's compressor. The value is checked and has no effect.
        gzip_window: PowerOfTwo<32> = "32k",
        /// Hash table size of nginx's compressor. The value is checked and has no effect.
        gzip_hash: PowerOfTwo<128> = "64k",
        /// Sends compressed output before a buffer is full. The value is checked and has no effect: output of 1 KB is sent at once,
        /// and less before each pause of an unbuffered response.
        gzip_no_buffer: Flag = "off",
        /// Amount of input that nginx collects before it compresses. The value is checked and has no effect.
        postpone_gzipping: Size = "0",
        /// Number and size of buffers. The value is checked and has no effect: the compressor sizes its own.
        gzip_buffers: Buffers = "32 4k",
        /// Minimum HTTP version of a request whose response is compressed.
        gzip_http_version: MinVersion = "1.1",
        /// Conditions under which responses to proxied requests (with `Via`) are compressed.
        gzip_proxied: Proxied = "off",
        /// Regular expressions for `User-Agent`. Matching clients get uncompressed responses.
        gzip_disable: GzipDisabled,
        /// Adds `Vary: Accept-Encoding` to responses that can be compressed.
        gzip_vary: Flag = "off",
    }
}

/// A power of two from 512 bytes to `KILO` KB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerOfTwo<const KILO: u64>(pub u64);

impl<const KILO: u64> ValueKind for PowerOfTwo<KILO> {
    const SYNTAX: &'static str = "size";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Size(bytes) = Size::parse(cx, d)?;
        if bytes.is_power_of_two() && (512..=KILO * 1024).contains(&bytes) {
            return Ok(PowerOfTwo(bytes));
        }
        let sizes: Vec<String> = (0..KILO.ilog2()).map(|n| format!("{}k", 1 << n)).collect();
        Err(Problem::directive(format!("must be 512, {}, or {KILO}k", sizes.join(", "))).at(0))
    }
}

#[derive(Clone)]
pub struct GzipTypes(MediaTypes);

impl ValueKind for GzipTypes {
    const SYNTAX: &'static str = "media-type ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(GzipTypes)
    }
    fn append(&mut self, later: Self) {
        self.0.join(&later.0);
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        self.0.warn_of_duplicates(&later.0, cx, d);
        Ok(())
    }
}

static VARIABLES: &[Builtin] = &[Builtin::one(
    "gzip_ratio",
    |r, out| compress::write_ratio(r, out),
    "The compression ratio: original length divided by compressed length.",
)];

pub struct Gzip;

impl Feature for Gzip {
    fn table(&self) -> FeatureTable {
        GzipConf::table("gzip", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<GzipConf>() else { return Ok(()) };
        // Shared with gzip_static and gunzip.
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
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let conf = &self.conf;
        if !compress::may_compress(r, conf.gzip_min_length.0, &conf.gzip_types.0) {
            return Ok(body);
        }
        r.out.vary_by_encoding(conf.gzip_vary);
        if !self.ok.allows(r) {
            return Ok(body);
        }
        compress::compress_body(r, body, Coding::Gzip, conf.gzip_comp_level.0 as u32, 15)
    }
}
