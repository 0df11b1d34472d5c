//! The phases of a request, and the order of handlers and filters.

/// The phases of a request, in their order (nginx: `ngx_http_phases`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Handlers of the server's own level: `rewrite` and others that act before a location is known.
    #[default]
    ServerRewrite,
    /// Selects the location by the path.
    FindLocation,
    /// `rewrite` directives of the location.
    Rewrite,
    /// Returns to [`Phase::FindLocation`] if the path was rewritten; responds with 500 to a cycle.
    PostRewrite,
    /// Limits of requests and connections, the client's real address.
    Preaccess,
    /// Checks of access, combined by `satisfy`.
    Access,
    /// Refuses the request if no check of `satisfy any` has admitted it.
    PostAccess,
    /// `try_files`, `mirror` and other work before the content.
    Precontent,
    /// Makes the response: the content handler or, without one, the handlers that look up files.
    Content,
}

/// Defined only here (nginx: the order of its filter modules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterOrder {
    /// Conditional requests: 304 and 412.
    NotModified,
    /// `slice`.
    Slice,
    /// Before the lines of the configuration, which may change its fields.
    Cors,
    /// `more_set_headers` and its siblings.
    MoreHeaders,
    /// `expires`, `add_header`.
    Headers,
    /// Fields that `.htaccess` files set.
    Htaccess,
    /// The cookies of `userid`.
    UserId,
    /// Decompresses responses for clients that do not accept gzip (`gunzip`).
    Gunzip,
    /// `sub_filter`.
    Sub,
    /// `Location::late_transform` stands here (`xslt_stylesheet`): it takes the output of the filters above.
    Charset,
    /// Server-side includes.
    Ssi,
    /// Behind filters of the body's text: an added response has the filters of its own location alone.
    Addition,
    /// Text around responses, of subrequests too (`echo_before_body`). `Location::guard` stands behind it.
    EchoBody,
    /// `gzip` and the other compressors.
    Compress,
    /// Byte ranges: 206 and 416.
    Range,
    /// `add_trailer`.
    Trailers,
    /// The field of `tidegate_explain`.
    Explain,
}

/// The parts of the chain of filters, divided where a feature may need the whole body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterStage {
    /// Filters whose output a late transform takes.
    Early,
    /// Filters of text behind the late transform. The guard of the location judges their output.
    Text,
    /// Compression, ranges, trailers.
    Late,
}

/// Defined only here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandlerOrder {
    /// Authorities are answered whatever the configuration says.
    ServerChallenge,
    /// The certificate's status is checked before anything else.
    ServerOcsp,
    /// Before any use of the client's address.
    ServerRealip,
    /// After `ServerRealip`, because access depends on the real address.
    ServerExplain,
    /// `client_body_early_read`.
    ServerEarlyBody,
    /// `rewrite` directives of the server level.
    ServerScript,
    /// Before `Script`, which may answer.
    Otel,
    /// `modsecurity`: the request's head, before `Script`, which may answer.
    FirewallHead,
    /// `rewrite` directives of a location.
    Script,
    /// `modsecurity`: the request's body, before limits, as in the connector of ModSecurity.
    FirewallBody,
    /// Before anything that depends on the path.
    RewritePrefix,
    /// Before any handler that reads the request's fields.
    RequestFields,
    /// The client's address behind trusted proxies (`set_real_ip_from` of a location).
    Realip,
    /// Before `LimitConn`, which would otherwise count delayed requests.
    LimitReq,
    /// `degradation`: refuses requests while the process uses too much memory.
    Degradation,
    /// `limit_conn`.
    LimitConn,
    /// Browsers send preflight requests without credentials; limits hold for them.
    Cors,
    /// A provider's answers are bounded by the limits of their location, and no matter of its access rules.
    OidcAnswer,
    /// `allow` and `deny`.
    Access,
    /// Before the checks of credentials, whose failures it limits.
    AuthFailureLimit,
    /// `auth_basic`.
    AuthBasic,
    /// Before `AuthJwt`, which may check the session's tokens.
    AuthOidc,
    /// `auth_jwt`.
    AuthJwt,
    /// `auth_request`.
    AuthRequest,
    /// After checks that set variables.
    AuthRequire,
    /// With `satisfy any`, a failed login counts when no check has admitted the request.
    AuthFailureCount,
    /// With `satisfy any`, a login begins when no check has admitted the request.
    OidcLogin,
    /// After all checks, whose results the target may use.
    InternalRedirect,
    /// Folder settings precede handlers that look up files.
    Htaccess,
    /// Before the body is read.
    TrackUploads,
    /// Before `Mirror`, which receives the final URI.
    TryFiles,
    /// Refuses methods of WebDAV that write to a locked resource (RFC 4918).
    DavGuard,
    /// `mirror`.
    Mirror,
    /// `flv`, `mp4` and `hls`: content handlers in nginx.
    Video,
    /// `random_index`.
    RandomIndex,
    /// `index`.
    Index,
    /// A folder may forbid listings.
    HtaccessListing,
    /// `autoindex`.
    Autoindex,
    /// `dav_methods`.
    Dav,
    /// Files that were compressed in advance (`gzip_static` and its siblings).
    CompressedFiles,
    /// Files as they are; the last handler.
    Files,
}

impl HandlerOrder {
    /// A rehearsal skips such a handler: it contacts a server, counts or changes state.
    pub fn has_effects(self) -> bool {
        matches!(
            self,
            HandlerOrder::ServerEarlyBody
                | HandlerOrder::ServerOcsp
                | HandlerOrder::LimitReq
                | HandlerOrder::LimitConn
                | HandlerOrder::Degradation
                | HandlerOrder::AuthFailureLimit
                | HandlerOrder::AuthFailureCount
                | HandlerOrder::OidcAnswer
                | HandlerOrder::AuthOidc
                | HandlerOrder::AuthJwt
                | HandlerOrder::AuthRequest
                | HandlerOrder::OidcLogin
                | HandlerOrder::DavGuard
                | HandlerOrder::Mirror
                | HandlerOrder::Dav
        )
    }
    /// Returns the phase in which the handler runs.
    pub fn phase(self) -> Phase {
        match self {
            HandlerOrder::ServerChallenge
            | HandlerOrder::ServerOcsp
            | HandlerOrder::ServerRealip
            | HandlerOrder::ServerExplain
            | HandlerOrder::ServerEarlyBody
            | HandlerOrder::ServerScript => Phase::ServerRewrite,
            HandlerOrder::Otel | HandlerOrder::FirewallHead | HandlerOrder::Script => Phase::Rewrite,
            HandlerOrder::FirewallBody
            | HandlerOrder::RewritePrefix
            | HandlerOrder::RequestFields
            | HandlerOrder::Realip
            | HandlerOrder::LimitReq
            | HandlerOrder::Degradation
            | HandlerOrder::LimitConn
            | HandlerOrder::Cors
            | HandlerOrder::OidcAnswer => Phase::Preaccess,
            HandlerOrder::Access
            | HandlerOrder::AuthFailureLimit
            | HandlerOrder::AuthBasic
            | HandlerOrder::AuthOidc
            | HandlerOrder::AuthJwt
            | HandlerOrder::AuthRequest
            | HandlerOrder::AuthRequire
            | HandlerOrder::AuthFailureCount
            | HandlerOrder::OidcLogin => Phase::Access,
            HandlerOrder::InternalRedirect
            | HandlerOrder::Htaccess
            | HandlerOrder::TrackUploads
            | HandlerOrder::TryFiles
            | HandlerOrder::DavGuard
            | HandlerOrder::Mirror => Phase::Precontent,
            HandlerOrder::Video
            | HandlerOrder::RandomIndex
            | HandlerOrder::Index
            | HandlerOrder::HtaccessListing
            | HandlerOrder::Autoindex
            | HandlerOrder::Dav
            | HandlerOrder::CompressedFiles
            | HandlerOrder::Files => Phase::Content,
        }
    }
}

impl FilterOrder {
    /// Returns the stage of the filter.
    pub const fn stage(self) -> FilterStage {
        match self as u8 {
            order if order < FilterOrder::Charset as u8 => FilterStage::Early,
            order if order < FilterOrder::Compress as u8 => FilterStage::Text,
            _ => FilterStage::Late,
        }
    }
    /// Filters of content, not of the client's message.
    pub const fn for_subrequests(self) -> bool {
        matches!(
            self,
            FilterOrder::Slice
                | FilterOrder::Gunzip
                | FilterOrder::Sub
                | FilterOrder::Charset
                | FilterOrder::Ssi
                | FilterOrder::EchoBody
        )
    }
}

/// The position of features that depend on no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanOrder {
    /// Before others that build upon it (caches, for features that pass requests on).
    Before,
    /// No position relative to others.
    #[default]
    Usual,
    /// After others: wraps their handlers (`slice`), or uses their state (`acme_certificate` a resolver).
    Around,
}
