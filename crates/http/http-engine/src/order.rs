//! The phases of a request, and the order of handlers and filters.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    ServerRewrite,
    FindLocation,
    Rewrite,
    PostRewrite,
    Preaccess,
    Access,
    PostAccess,
    Precontent,
    Content,
}

/// Defined only here (nginx: the order of its filter modules).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilterOrder {
    NotModified,
    Slice,
    /// Before the lines of the configuration, which may change its fields.
    Cors,
    MoreHeaders,
    Headers,
    Htaccess,
    UserId,
    Gunzip,
    Sub,
    /// `Location::late_transform` stands here (`xslt_stylesheet`): it takes the output of the filters above.
    Charset,
    Ssi,
    /// Behind filters of the body's text: an added response has the filters of its own location alone.
    Addition,
    /// Text around responses, of subrequests too (`echo_before_body`).
    EchoBody,
    Compress,
    Range,
    Trailers,
    Explain,
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
    ServerEarlyBody,
    ServerScript,
    /// Before `Script`, which may answer.
    Otel,
    Script,
    /// Before anything that depends on the path.
    RewritePrefix,
    /// Before any handler that reads the request's fields.
    RequestFields,
    Realip,
    /// Before `LimitConn`, which would otherwise count delayed requests.
    LimitReq,
    Degradation,
    LimitConn,
    /// Browsers send preflight requests without credentials; limits hold for them.
    Cors,
    /// A provider's answers are bounded by the limits of their location, and no matter of its access rules.
    OidcAnswer,
    Access,
    /// Before the checks of credentials, whose failures it limits.
    AuthFailureLimit,
    AuthBasic,
    /// Before `AuthJwt`, which may check the session's tokens.
    AuthOidc,
    AuthJwt,
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
    DavGuard,
    Mirror,
    Video,
    RandomIndex,
    Index,
    /// A folder may forbid listings.
    HtaccessListing,
    Autoindex,
    Dav,
    CompressedFiles,
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
    pub fn phase(self) -> Phase {
        match self {
            HandlerOrder::ServerChallenge
            | HandlerOrder::ServerOcsp
            | HandlerOrder::ServerRealip
            | HandlerOrder::ServerExplain
            | HandlerOrder::ServerEarlyBody
            | HandlerOrder::ServerScript => Phase::ServerRewrite,
            HandlerOrder::Otel | HandlerOrder::Script => Phase::Rewrite,
            HandlerOrder::RewritePrefix
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
    /// Filters whose output a late transform takes.
    pub const fn is_before_transform(self) -> bool {
        (self as u8) < FilterOrder::Charset as u8
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanOrder {
    /// Before others that build upon it (caches, for features that pass requests on).
    Before,
    #[default]
    Usual,
    /// After others: wraps their handlers (`slice`), or uses their state (`acme_certificate` a resolver).
    Around,
}
