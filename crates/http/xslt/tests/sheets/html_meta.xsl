<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="html" encoding="UTF-8"/><xsl:template match="/"><html><head><meta http-equiv="content-type" content="text/html; charset=latin1"/><title>x</title></head><frameset><frame src="x"/></frameset></html></xsl:template>
</xsl:stylesheet>
