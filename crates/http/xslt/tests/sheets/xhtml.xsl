<!-- books.xml -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="xml" indent="yes" doctype-public="-//W3C//DTD XHTML 1.0 Strict//EN" doctype-system="http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd"/><xsl:template match="/"><html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><title>x</title></head><body><p/><br/><a name="n">t</a><img src="a" alt=""/><div><p>a</p><p>b</p></div></body></html></xsl:template>
</xsl:stylesheet>
