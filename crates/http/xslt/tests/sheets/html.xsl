<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="html" doctype-system="about:legacy-compat"/><xsl:template match="/"><html lang="en"><head><title>T</title><script>if (a &lt; b) c();</script><style>p &gt; q</style></head><body><h1>Books</h1><table border="1"><tr><th>Title</th></tr><xsl:for-each select="//book"><tr><td><a href="/b?i={@id}&amp;x=ü y"><xsl:value-of select="title"/></a></td><td><xsl:value-of select="@price"/></td></tr></xsl:for-each></table><hr/><input type="checkbox" checked="checked" value="a&quot;b&lt;c"/><br/>é&#160;<img src="a b.png"/><ul><li>1</li><li/></ul><p/><pre><b/><i/></pre></body></html></xsl:template>
</xsl:stylesheet>
