//! Settings of the engine that ModSecurity recommends.

/// Directives of SecLang: limits of request bodies and parameters, and rules that read XML and JSON and refuse requests that cannot be
/// read in full. Rule 200007 has the number of `SecArgumentsLimit`: parameters beyond it are not inspected. They reach
/// no file and leave `SecRuleEngine` to the caller (ModSecurity: `modsecurity.conf-recommended`).
pub const RECOMMENDED_SETTINGS: &str = "\
SecRequestBodyAccess On
SecRequestBodyLimit 13107200
SecRequestBodyNoFilesLimit 131072
SecRequestBodyLimitAction Reject
SecArgumentsLimit 1000
SecRule REQUEST_HEADERS:Content-Type \"^(?:application(?:/soap\\+|/)|text/)xml\" \\
    \"id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML\"
SecRule REQUEST_HEADERS:Content-Type \"^application/(?:[a-z0-9.-]+[+])?json\" \\
    \"id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON\"
SecRule REQBODY_ERROR \"!@eq 0\" \\
    \"id:200002,phase:2,t:none,log,deny,status:400,msg:'Failed to parse the body of the request',logdata:'%{reqbody_error_msg}'\"
SecRule MULTIPART_STRICT_ERROR \"!@eq 0\" \\
    \"id:200003,phase:2,t:none,log,deny,status:400,msg:'The multipart body is not strict: \
PE %{REQBODY_PROCESSOR_ERROR}, BQ %{MULTIPART_BOUNDARY_QUOTED}, BW %{MULTIPART_BOUNDARY_WHITESPACE}, \
DB %{MULTIPART_DATA_BEFORE}, DA %{MULTIPART_DATA_AFTER}, HF %{MULTIPART_HEADER_FOLDING}, LF %{MULTIPART_LF_LINE}, \
SM %{MULTIPART_MISSING_SEMICOLON}, IQ %{MULTIPART_INVALID_QUOTING}, IP %{MULTIPART_INVALID_PART}, \
IH %{MULTIPART_INVALID_HEADER_FOLDING}, FL %{MULTIPART_FILE_LIMIT_EXCEEDED}'\"
# The number of SecArgumentsLimit: change both.
SecRule &ARGS \"@ge 1000\" \\
    \"id:200007,phase:2,t:none,log,deny,status:400,msg:'Failed to fully parse request body due to large argument count',\
severity:2\"
";
