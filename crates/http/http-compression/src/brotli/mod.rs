//! Brotli (RFC 7932), dynamic and from files; directives as in the module ngx_brotli.

use crate::shared::compress::{self, Coding};
use crate::shared::static_coded::{StaticCoded, StaticMode};
use conf_schema::value::{Between, Buffers, Flag, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::media_types::MediaTypes;
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, HandlerOrder, Request, ResponseBody};
use http_types::Known;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct BrotliConf from BrotliInput {
        /// Compresses responses for clients that accept `br`.
        brotli: Flag = "off",
        /// Compression level, from 0 (fastest) to 11 (smallest).
        /// Differs: a response of more than 128 KB is compressed in segments of this size (64 KB from level 10), unless
        /// `generated_body_memory` has room for the encoder's state; 7 to 9 are 6 for shorter ones.
        brotli_comp_level: Between<0, 11> = "6",
        /// Minimum length of a response to compress, by its `Content-Length`.
        brotli_min_length: Size = "20",
        /// Media types to compress, besides text/html.
        brotli_types: Types = "text/html",
        /// Number and size of buffers. The value is checked and has no effect: the compressor sizes its own.
        brotli_buffers: Buffers = "32 4k",
        /// Serves the file with the suffix `.br` instead of the original, to clients that accept it.
        brotli_static: StaticMode = "off",
        /// Window size of the compressor.
        brotli_window: Size = "512k",
    }
}

#[derive(Clone)]
pub struct Types(MediaTypes);

impl ValueKind for Types {
    const SYNTAX: &'static str = "media-type ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(Types)
    }
}

pub struct Brotli;

impl Feature for Brotli {
    fn table(&self) -> FeatureTable {
        BrotliConf::table("brotli", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<BrotliConf>() else { return Ok(()) };
        if conf.brotli_static != StaticMode::Off {
            let handler = StaticCoded { coding: Coding::Brotli, mode: conf.brotli_static };
            block.handle(HandlerOrder::CompressedFiles, Arc::new(handler));
        }
        if conf.brotli {
            block.location.filters.push((FilterOrder::Compress, Arc::new(Compress(conf))));
        }
        Ok(())
    }
}

struct Compress(Arc<BrotliConf>);

impl Filter for Compress {
    fn name(&self) -> &'static str {
        "brotli"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let conf = &self.0;
        if !compress::may_compress(r, conf.brotli_min_length.0, &conf.brotli_types.0) {
            return Ok(body);
        }
        r.out.vary_by_encoding(true);
        let accept = r.header(Known::AcceptEncoding).unwrap_or(b"");
        let quality = compress::coding_quality(accept, "br");
        // A client that prefers gzip gets it from the next filter, if enabled.
        if quality == 0 || compress::coding_quality(accept, "gzip") > quality {
            return Ok(body);
        }
        compress::compress_body(
            r,
            body,
            Coding::Brotli,
            conf.brotli_comp_level.0 as u32,
            (conf.brotli_window.0.max(1024).ilog2()).clamp(10, 24),
        )
    }
}
