<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="html" indent="no" encoding="US-ASCII"/><xsl:template match="/"><html><head/><body><div><p>é</p><p/></div></body></html></xsl:template>
</xsl:stylesheet>
