<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:variable name="g" select="count(//book)"/><xsl:variable name="later" select="$g + 1"/><xsl:param name="p">default</xsl:param><xsl:template match="/"><xsl:variable name="v"><a>1</a><b>2</b></xsl:variable><xsl:variable name="e"/><r v="{$v}" g="{$g}" l="{$later}" p="{$p}" e="{$e}"><xsl:copy-of select="$v"/><xsl:for-each select="//book[1]"><xsl:variable name="w" select="'inner'"/><xsl:value-of select="$v"/></xsl:for-each><xsl:value-of select="$v"/></r></xsl:template>
</xsl:stylesheet>
