//! Settings of the engine that ModSecurity recommends.

/// Directives of SecLang: limits of request bodies, and rules that read XML and JSON and refuse bodies that cannot be read. They reach
/// no file and leave `SecRuleEngine` to the caller (ModSecurity: `modsecurity.conf-recommended`).
pub const RECOMMENDED_SETTINGS: &str = "\
SecRequestBodyAccess On
SecRequestBodyLimit 13107200
SecRequestBodyNoFilesLimit 131072
SecRequestBodyLimitAction Reject
SecRule REQUEST_HEADERS:Content-Type \"^(?:application(?:/soap\\+|/)|text/)xml\" \\
    \"id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML\"
SecRule REQUEST_HEADERS:Content-Type \"^application/(?:[a-z0-9.-]+[+])?json\" \\
    \"id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON\"
SecRule REQBODY_ERROR \"!@eq 0\" \\
    \"id:200002,phase:2,t:none,log,deny,status:400,msg:'Failed to parse the body of the request'\"
SecRule MULTIPART_STRICT_ERROR \"!@eq 0\" \\
    \"id:200003,phase:2,t:none,log,deny,status:400,msg:'The multipart body is not strict'\"
";
