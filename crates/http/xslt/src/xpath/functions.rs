//! Functions by name: XPath 1.0, XSLT 1.0 and those of EXSLT that libexslt has.

macro_rules! functions {
    ($($name:ident $uri:ident $text:literal $least:literal $most:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Function {
            $($name,)*
        }
        /// Namespace, name, function, least and most arguments.
        static TABLE: &[(&str, &str, Function, usize, usize)] = &[
            $(($uri, $text, Function::$name, $least, $most),)*
        ];
    };
}

pub(crate) const CORE: &str = "";
pub(crate) const COMMON: &str = "http://exslt.org/common";
pub(crate) const MATH: &str = "http://exslt.org/math";
pub(crate) const SETS: &str = "http://exslt.org/sets";
pub(crate) const TEXTS: &str = "http://exslt.org/strings";
pub(crate) const DYNAMIC: &str = "http://exslt.org/dynamic";
pub(crate) const DATES: &str = "http://exslt.org/dates-and-times";
pub(crate) const FUNCTIONS: &str = "http://exslt.org/functions";
const LIBXSLT: &str = "http://xmlsoft.org/XSLT/namespace";
const SAXON: &str = "http://icl.com/saxon";
const XT: &str = "http://www.jclark.com/xt";

functions! {
    Last CORE "last" 0 0,
    Position CORE "position" 0 0,
    Count CORE "count" 1 1,
    Id CORE "id" 1 1,
    LocalName CORE "local-name" 0 1,
    NamespaceUri CORE "namespace-uri" 0 1,
    Name CORE "name" 0 1,
    Text CORE "string" 0 1,
    Concat CORE "concat" 2 65535,
    StartsWith CORE "starts-with" 2 2,
    Contains CORE "contains" 2 2,
    SubstringBefore CORE "substring-before" 2 2,
    SubstringAfter CORE "substring-after" 2 2,
    Substring CORE "substring" 2 3,
    StringLength CORE "string-length" 0 1,
    NormalizeSpace CORE "normalize-space" 0 1,
    Translate CORE "translate" 3 3,
    Boolean CORE "boolean" 1 1,
    Not CORE "not" 1 1,
    True CORE "true" 0 0,
    False CORE "false" 0 0,
    Lang CORE "lang" 1 1,
    Number CORE "number" 0 1,
    Sum CORE "sum" 1 1,
    Floor CORE "floor" 1 1,
    Ceiling CORE "ceiling" 1 1,
    Round CORE "round" 1 1,
    Document CORE "document" 1 2,
    Key CORE "key" 2 2,
    FormatNumber CORE "format-number" 2 3,
    Current CORE "current" 0 0,
    UnparsedEntityUri CORE "unparsed-entity-uri" 1 1,
    GenerateId CORE "generate-id" 0 1,
    SystemProperty CORE "system-property" 1 1,
    ElementAvailable CORE "element-available" 1 1,
    IsFunctionAvailable CORE "function-available" 1 1,
    NodeSet COMMON "node-set" 1 1,
    ObjectType COMMON "object-type" 1 1,
    NodeSetLibxslt LIBXSLT "node-set" 1 1,
    NodeSetSaxon SAXON "node-set" 1 1,
    NodeSetXt XT "node-set" 1 1,
    SaxonEvaluate SAXON "evaluate" 1 1,
    SaxonLineNumber SAXON "line-number" 0 1,
    MathMin MATH "min" 1 1,
    MathMax MATH "max" 1 1,
    MathHighest MATH "highest" 1 1,
    MathLowest MATH "lowest" 1 1,
    MathConstant MATH "constant" 2 2,
    MathRandom MATH "random" 0 0,
    MathAbs MATH "abs" 1 1,
    MathSqrt MATH "sqrt" 1 1,
    MathPower MATH "power" 2 2,
    MathLog MATH "log" 1 1,
    MathSin MATH "sin" 1 1,
    MathCos MATH "cos" 1 1,
    MathTan MATH "tan" 1 1,
    MathAsin MATH "asin" 1 1,
    MathAcos MATH "acos" 1 1,
    MathAtan MATH "atan" 1 1,
    MathAtan2 MATH "atan2" 2 2,
    MathExp MATH "exp" 1 1,
    SetDifference SETS "difference" 2 2,
    SetIntersection SETS "intersection" 2 2,
    SetDistinct SETS "distinct" 1 1,
    SetHasSameNode SETS "has-same-node" 2 2,
    SetLeading SETS "leading" 2 2,
    SetTrailing SETS "trailing" 2 2,
    TextTokenize TEXTS "tokenize" 1 2,
    TextSplit TEXTS "split" 1 2,
    TextEncodeUri TEXTS "encode-uri" 2 3,
    TextDecodeUri TEXTS "decode-uri" 1 2,
    TextPadding TEXTS "padding" 1 2,
    TextAlign TEXTS "align" 2 3,
    TextConcat TEXTS "concat" 1 1,
    TextReplace TEXTS "replace" 3 3,
    DynamicEvaluate DYNAMIC "evaluate" 1 1,
    DynamicMap DYNAMIC "map" 2 2,
    DateDateTime DATES "date-time" 0 0,
    DateDate DATES "date" 0 1,
    DateTime DATES "time" 0 1,
    DateYear DATES "year" 0 1,
    DateLeapYear DATES "leap-year" 0 1,
    DateMonthInYear DATES "month-in-year" 0 1,
    DateMonthName DATES "month-name" 0 1,
    DateMonthAbbreviation DATES "month-abbreviation" 0 1,
    DateWeekInYear DATES "week-in-year" 0 1,
    DateWeekInMonth DATES "week-in-month" 0 1,
    DateDayInYear DATES "day-in-year" 0 1,
    DateDayInMonth DATES "day-in-month" 0 1,
    DateDayOfWeekInMonth DATES "day-of-week-in-month" 0 1,
    DateDayInWeek DATES "day-in-week" 0 1,
    DateDayName DATES "day-name" 0 1,
    DateDayAbbreviation DATES "day-abbreviation" 0 1,
    DateHourInDay DATES "hour-in-day" 0 1,
    DateMinuteInHour DATES "minute-in-hour" 0 1,
    DateSecondInMinute DATES "second-in-minute" 0 1,
    DateSeconds DATES "seconds" 0 1,
    DateAdd DATES "add" 2 2,
    DateAddDuration DATES "add-duration" 2 2,
    DateDifference DATES "difference" 2 2,
    DateDuration DATES "duration" 0 1,
    DateSum DATES "sum" 1 1,
}

pub(crate) fn find(uri: &str, name: &str) -> Option<Function> {
    TABLE.iter().find(|(its_uri, its_name, ..)| *its_uri == uri && *its_name == name).map(|(.., f, _, _)| *f)
}

/// Name, least and most arguments.
pub(crate) fn arity(function: Function) -> (&'static str, usize, usize) {
    TABLE
        .iter()
        .find(|(_, _, f, ..)| *f == function)
        .map_or(("", 0, 0), |(_, name, _, least, most)| (name, *least, *most))
}

impl Function {
    pub(crate) fn uses_position(self) -> bool {
        matches!(self, Function::Last | Function::Position | Function::DynamicEvaluate | Function::SaxonEvaluate)
    }
    pub(crate) fn may_be_number(self) -> bool {
        use Function as F;
        let core = matches!(
            self,
            F::Last | F::Position | F::Count | F::StringLength | F::Number | F::Sum | F::Floor | F::Ceiling | F::Round
        );
        let name = format!("{self:?}");
        core || name.starts_with("Math")
            || name.starts_with("Date")
            || name.starts_with("Dynamic")
            || name.starts_with("Saxon")
            || self == F::SystemProperty
    }
}
