<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="a" match="book" use="author"/><xsl:template match="/"><r><xsl:for-each select="//book[generate-id()=generate-id(key('a',author)[1])]"><xsl:sort select="author"/><g a="{author}"><xsl:copy-of select="key('a',author)/title"/></g></xsl:for-each></r></xsl:template>
</xsl:stylesheet>
