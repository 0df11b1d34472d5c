<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:template match="book"><xsl:choose><xsl:when test="@price &gt; 10">dear</xsl:when><xsl:when test="@price &lt;= 10">cheap</xsl:when><xsl:otherwise>unknown</xsl:otherwise></xsl:choose><xsl:if test="note"> noted</xsl:if>;</xsl:template><xsl:template match="text()"/>
</xsl:stylesheet>
