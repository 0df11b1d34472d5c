//! The variables of rules: names, and the collections behind them.

/// A variable by its name in the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variable {
    Args,
    ArgsCombinedSize,
    ArgsGet,
    ArgsGetNames,
    ArgsNames,
    ArgsPost,
    ArgsPostNames,
    AuthType,
    Duration,
    Env,
    Files,
    FilesCombinedSize,
    FilesNames,
    FilesSizes,
    FilesTmpContent,
    FilesTmpNames,
    FullRequest,
    FullRequestLength,
    Geo,
    Global,
    HighestSeverity,
    InboundDataError,
    Ip,
    MatchedVar,
    MatchedVarName,
    MatchedVars,
    MatchedVarsNames,
    ModsecBuild,
    MscPcreError,
    MscPcreLimitsExceeded,
    MultipartBoundaryQuoted,
    MultipartBoundaryWhitespace,
    MultipartCrlfLfLines,
    MultipartDataAfter,
    MultipartDataBefore,
    MultipartFileLimitExceeded,
    MultipartFilename,
    MultipartHeaderFolding,
    MultipartInvalidHeaderFolding,
    MultipartInvalidPart,
    MultipartInvalidQuoting,
    MultipartLfLine,
    MultipartMissingSemicolon,
    MultipartName,
    MultipartPartHeaders,
    MultipartStrictError,
    MultipartUnmatchedBoundary,
    OutboundDataError,
    PathInfo,
    QueryString,
    RemoteAddr,
    RemoteHost,
    RemotePort,
    RemoteUser,
    ReqbodyError,
    ReqbodyErrorMsg,
    ReqbodyProcessor,
    ReqbodyProcessorError,
    ReqbodyProcessorErrorMsg,
    RequestBasename,
    RequestBody,
    RequestBodyLength,
    RequestCookies,
    RequestCookiesNames,
    RequestFilename,
    RequestHeaders,
    RequestHeadersNames,
    RequestLine,
    RequestMethod,
    RequestProtocol,
    RequestUri,
    RequestUriRaw,
    Resource,
    ResponseBody,
    ResponseContentLength,
    ResponseContentType,
    ResponseHeaders,
    ResponseHeadersNames,
    ResponseProtocol,
    ResponseStatus,
    Rule,
    ServerAddr,
    ServerName,
    ServerPort,
    Session,
    SessionId,
    StatusLine,
    Time,
    TimeDay,
    TimeEpoch,
    TimeHour,
    TimeMin,
    TimeMon,
    TimeSec,
    TimeWday,
    TimeYear,
    Tx,
    UniqueId,
    UrlencodedError,
    User,
    UserId,
    WebAppId,
    Xml,
}

use Variable as V;

/// Names of variables; the first row of a variable is the name that messages show.
const NAMES: &[(&str, Variable)] = &[
    ("ARGS", V::Args),
    ("ARGS_COMBINED_SIZE", V::ArgsCombinedSize),
    ("ARGS_GET", V::ArgsGet),
    ("ARGS_GET_NAMES", V::ArgsGetNames),
    ("ARGS_NAMES", V::ArgsNames),
    ("ARGS_POST", V::ArgsPost),
    ("ARGS_POST_NAMES", V::ArgsPostNames),
    ("AUTH_TYPE", V::AuthType),
    ("DURATION", V::Duration),
    ("ENV", V::Env),
    ("FILES", V::Files),
    ("FILES_COMBINED_SIZE", V::FilesCombinedSize),
    ("FILES_NAMES", V::FilesNames),
    ("FILES_SIZES", V::FilesSizes),
    ("FILES_TMP_CONTENT", V::FilesTmpContent),
    ("FILES_TMPNAMES", V::FilesTmpNames),
    ("FULL_REQUEST", V::FullRequest),
    ("FULL_REQUEST_LENGTH", V::FullRequestLength),
    ("GEO", V::Geo),
    ("GLOBAL", V::Global),
    ("HIGHEST_SEVERITY", V::HighestSeverity),
    ("INBOUND_DATA_ERROR", V::InboundDataError),
    ("IP", V::Ip),
    ("MATCHED_VAR", V::MatchedVar),
    ("MATCHED_VAR_NAME", V::MatchedVarName),
    ("MATCHED_VARS", V::MatchedVars),
    ("MATCHED_VARS_NAMES", V::MatchedVarsNames),
    ("MODSEC_BUILD", V::ModsecBuild),
    ("MSC_PCRE_ERROR", V::MscPcreError),
    ("MSC_PCRE_LIMITS_EXCEEDED", V::MscPcreLimitsExceeded),
    ("MULTIPART_BOUNDARY_QUOTED", V::MultipartBoundaryQuoted),
    ("MULTIPART_BOUNDARY_WHITESPACE", V::MultipartBoundaryWhitespace),
    ("MULTIPART_CRLF_LF_LINES", V::MultipartCrlfLfLines),
    ("MULTIPART_DATA_AFTER", V::MultipartDataAfter),
    ("MULTIPART_DATA_BEFORE", V::MultipartDataBefore),
    ("MULTIPART_FILE_LIMIT_EXCEEDED", V::MultipartFileLimitExceeded),
    ("MULTIPART_FILENAME", V::MultipartFilename),
    ("MULTIPART_HEADER_FOLDING", V::MultipartHeaderFolding),
    ("MULTIPART_INVALID_HEADER_FOLDING", V::MultipartInvalidHeaderFolding),
    ("MULTIPART_INVALID_PART", V::MultipartInvalidPart),
    ("MULTIPART_INVALID_QUOTING", V::MultipartInvalidQuoting),
    ("MULTIPART_LF_LINE", V::MultipartLfLine),
    ("MULTIPART_MISSING_SEMICOLON", V::MultipartMissingSemicolon),
    ("MULTIPART_SEMICOLON_MISSING", V::MultipartMissingSemicolon),
    ("MULTIPART_NAME", V::MultipartName),
    ("MULTIPART_PART_HEADERS", V::MultipartPartHeaders),
    ("MULTIPART_STRICT_ERROR", V::MultipartStrictError),
    ("MULTIPART_UNMATCHED_BOUNDARY", V::MultipartUnmatchedBoundary),
    ("OUTBOUND_DATA_ERROR", V::OutboundDataError),
    ("PATH_INFO", V::PathInfo),
    ("QUERY_STRING", V::QueryString),
    ("REMOTE_ADDR", V::RemoteAddr),
    ("REMOTE_HOST", V::RemoteHost),
    ("REMOTE_PORT", V::RemotePort),
    ("REMOTE_USER", V::RemoteUser),
    ("REQBODY_ERROR", V::ReqbodyError),
    ("REQBODY_ERROR_MSG", V::ReqbodyErrorMsg),
    ("REQBODY_PROCESSOR", V::ReqbodyProcessor),
    ("REQBODY_PROCESSOR_ERROR", V::ReqbodyProcessorError),
    ("REQBODY_PROCESSOR_ERROR_MSG", V::ReqbodyProcessorErrorMsg),
    ("REQUEST_BASENAME", V::RequestBasename),
    ("REQUEST_BODY", V::RequestBody),
    ("REQUEST_BODY_LENGTH", V::RequestBodyLength),
    ("REQUEST_COOKIES", V::RequestCookies),
    ("REQUEST_COOKIES_NAMES", V::RequestCookiesNames),
    ("REQUEST_FILENAME", V::RequestFilename),
    ("REQUEST_HEADERS", V::RequestHeaders),
    ("REQUEST_HEADERS_NAMES", V::RequestHeadersNames),
    ("REQUEST_LINE", V::RequestLine),
    ("REQUEST_METHOD", V::RequestMethod),
    ("REQUEST_PROTOCOL", V::RequestProtocol),
    ("REQUEST_URI", V::RequestUri),
    ("REQUEST_URI_RAW", V::RequestUriRaw),
    ("RESOURCE", V::Resource),
    ("RESPONSE_BODY", V::ResponseBody),
    ("RESPONSE_CONTENT_LENGTH", V::ResponseContentLength),
    ("RESPONSE_CONTENT_TYPE", V::ResponseContentType),
    ("RESPONSE_HEADERS", V::ResponseHeaders),
    ("RESPONSE_HEADERS_NAMES", V::ResponseHeadersNames),
    ("RESPONSE_PROTOCOL", V::ResponseProtocol),
    ("RESPONSE_STATUS", V::ResponseStatus),
    ("STATUS", V::ResponseStatus),
    ("RULE", V::Rule),
    ("SERVER_ADDR", V::ServerAddr),
    ("SERVER_NAME", V::ServerName),
    ("SERVER_PORT", V::ServerPort),
    ("SESSION", V::Session),
    ("SESSIONID", V::SessionId),
    ("STATUS_LINE", V::StatusLine),
    ("TIME", V::Time),
    ("TIME_DAY", V::TimeDay),
    ("TIME_EPOCH", V::TimeEpoch),
    ("TIME_HOUR", V::TimeHour),
    ("TIME_MIN", V::TimeMin),
    ("TIME_MON", V::TimeMon),
    ("TIME_SEC", V::TimeSec),
    ("TIME_WDAY", V::TimeWday),
    ("TIME_YEAR", V::TimeYear),
    ("TX", V::Tx),
    ("UNIQUE_ID", V::UniqueId),
    ("URLENCODED_ERROR", V::UrlencodedError),
    ("USER", V::User),
    ("USERID", V::UserId),
    ("WEBAPPID", V::WebAppId),
    ("XML", V::Xml),
];

/// Variables of ModSecurity that the engine does not have, with the reason.
const ABSENT: &[(&str, &str)] = &[
    ("PERF_ALL", "the engine measures no times of single rules"),
    ("PERF_COMBINED", "the engine measures no times of single rules"),
    ("SCRIPT_BASENAME", "libmodsecurity v3 has no SCRIPT_* variables either"),
    ("SCRIPT_FILENAME", "libmodsecurity v3 has no SCRIPT_* variables either"),
    ("SDBM_DELETE_ERROR", "collections are kept in memory, not in SDBM files"),
    ("STREAM_INPUT_BODY", "bodies are inspected whole, not as streams"),
    ("STREAM_OUTPUT_BODY", "bodies are inspected whole, not as streams"),
    ("WEBSERVER_ERROR_LOG", "the server's error log is not a variable"),
];

impl Variable {
    /// Finds a variable by name, without regard to case.
    pub fn named(name: &str) -> Option<Variable> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, found)| *found)
    }

    /// The reason why a variable of ModSecurity is not one of the engine.
    pub fn absence(name: &str) -> Option<&'static str> {
        ABSENT.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, reason)| *reason)
    }

    /// All names, for suggestions.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }

    /// The name that messages show.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Returns whether the variable has elements, which a rule can select by name.
    pub fn is_collection(self) -> bool {
        matches!(
            self,
            V::Args
                | V::ArgsGet
                | V::ArgsGetNames
                | V::ArgsNames
                | V::ArgsPost
                | V::ArgsPostNames
                | V::Env
                | V::Files
                | V::FilesNames
                | V::FilesSizes
                | V::FilesTmpContent
                | V::FilesTmpNames
                | V::Geo
                | V::Global
                | V::Ip
                | V::MatchedVars
                | V::MatchedVarsNames
                | V::MultipartFilename
                | V::MultipartName
                | V::MultipartPartHeaders
                | V::RequestCookies
                | V::RequestCookiesNames
                | V::RequestHeaders
                | V::RequestHeadersNames
                | V::Resource
                | V::ResponseHeaders
                | V::ResponseHeadersNames
                | V::Rule
                | V::Session
                | V::Tx
                | V::User
                | V::Xml
        )
    }

    /// The collection that outlives a transaction, if the variable is one.
    pub fn lasting(self) -> Option<crate::store::LastingCollection> {
        use crate::store::LastingCollection;
        Some(match self {
            V::Global => LastingCollection::Global,
            V::Ip => LastingCollection::Ip,
            V::Resource => LastingCollection::Resource,
            V::Session => LastingCollection::Session,
            V::User => LastingCollection::User,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_without_case() {
        assert_eq!(Variable::named("args_Names"), Some(Variable::ArgsNames));
        assert_eq!(Variable::named("STATUS").map(Variable::name), Some("RESPONSE_STATUS"));
        assert!(Variable::named("PERF_ALL").is_none() && Variable::absence("perf_all").is_some());
    }

    #[test]
    fn every_variable_has_one_canonical_name() {
        for (name, variable) in NAMES {
            assert_eq!(Variable::named(variable.name()), Some(*variable), "{name}");
        }
    }
}
